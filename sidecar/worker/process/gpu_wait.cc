#include "sidecar/worker/process/gpu_wait.h"

#include <sched.h>

#include <thread>

namespace gantry::worker {
namespace {

// So long it is asked again and again whether the GPU is done, then now and then.
constexpr microseconds kSpin{500};
constexpr microseconds kPause{20};

}  // namespace

void GpuPatience::Pause() {
  const TimePoint now = Clock::now();
  if (since_ == TimePoint()) since_ = now;
  if (now - since_ < kSpin) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(kPause);
  }
}

Status AwaitGpu(gpu::GpuEvent& mark) {
  GpuPatience patience;
  for (;;) {
    ASSIGN_OR_RETURN(const bool reached, mark.IsReached());
    if (reached) return {};
    patience.Pause();
  }
}

}  // namespace gantry::worker
