#include "sidecar/transport/gpu_copy_planner.h"

#include <algorithm>

namespace gantry::transport {
namespace {

using worker::GpuMeans;

constexpr uint64_t kKernelJobBytes = 32 << 20;
constexpr size_t kKernelJobSegments = 4096;
constexpr uint64_t kProbeBytes = 1 << 20;
constexpr uint64_t kEngineJobBytes = 64 << 20;
constexpr size_t kEngineJobSegments = 256;

// A GPU on which others compute gives a kernel its turn after milliseconds.
constexpr double kTurnNanoseconds = 1e6;
constexpr double kSlowRate = 10;  // until kernels were seen: less than PCIe
constexpr double kSlowFactor = 3;
constexpr uint64_t kRateBytesMin = 8 << 20;
// A worker without kernels may be replaced by one that has them.
constexpr milliseconds kKernelsAgain{10'000};
constexpr milliseconds kProbePauseMin{100};
constexpr milliseconds kProbePauseMax{2'000};

GpuCopyPlan ByEngines(std::string_view reason) {
  return {GpuMeans::kCopyEngine, reason, false, kEngineJobBytes, kEngineJobSegments};
}
GpuCopyPlan ByKernel(std::string_view reason, bool probe) {
  return {GpuMeans::kKernel, reason, probe, probe ? kProbeBytes : kKernelJobBytes,
          kKernelJobSegments};
}

}  // namespace

GpuCopyPlanner::GpuCopyPlanner(GpuCopyPolicy policy)
    : policy_(policy), probe_pause_(kProbePauseMin), best_rate_(kSlowRate) {}

GpuCopyPlan GpuCopyPlanner::Choose(uint64_t chunks, TimePoint now) const {
  if (policy_ == GpuCopyPolicy::kEngines) return ByEngines("--gpu-copies asks for copy engines");
  const bool has_kernels = now >= no_kernels_until_;
  if (policy_ == GpuCopyPolicy::kKernel && has_kernels) {
    return ByKernel("--gpu-copies asks for a kernel", false);
  }
  if (chunks <= kFewChunks) return ByEngines("few blocks: a copy engine begins at once");
  if (!has_kernels) return ByEngines(kNoKernels);
  if (state_ == State::kIdle) {
    return ByKernel("a kernel is the fastest while the GPU computes nothing else", false);
  }
  if (state_ == State::kBusy && now >= probe_again_) {
    return ByKernel("a look whether the GPU is still busy", true);
  }
  return ByEngines("the GPU is busy: a kernel had to wait for its turn");
}

GpuCopyPlanner::Job GpuCopyPlanner::Posted(const GpuCopyPlan& plan, uint64_t bytes, TimePoint now) {
  if (plan.means != GpuMeans::kKernel) return {plan, bytes, 0, now};
  if (plan.probe) state_ = State::kProbed;
  if (in_flight_ == 0) {
    first_posted_ = now;
    moved_ = 0;
  }
  in_flight_ += bytes;
  return {plan, bytes, in_flight_, now};
}

bool GpuCopyPlanner::IsSlow(const Job& job, TimePoint now) const {
  const auto taken = static_cast<double>(nanoseconds(now - job.posted).count());
  return taken > kSlowFactor * static_cast<double>(job.ahead) / best_rate_ + kTurnNanoseconds;
}

void GpuCopyPlanner::Done(const Job& job, const worker::Completion& completion, TimePoint now) {
  if (job.plan.means != GpuMeans::kKernel) return;
  in_flight_ -= job.bytes;
  moved_ += completion.ok ? job.bytes : 0;
  if (completion.ok && completion.means != GpuMeans::kKernel) {
    no_kernels_until_ = now + kKernelsAgain;
  }
  if (in_flight_ == 0 && completion.ok && moved_ >= kRateBytesMin) {
    const nanoseconds busy = now - first_posted_;
    best_rate_ = std::max(best_rate_, static_cast<double>(moved_) /
                                          static_cast<double>(std::max<int64_t>(busy.count(), 1)));
  }
  const bool says_something = state_ == State::kIdle || job.plan.probe;  // others are from before
  if (!says_something) return;
  if (!completion.ok) {
    if (job.plan.probe) state_ = State::kBusy;
  } else if (IsSlow(job, now)) {
    const bool again = state_ == State::kProbed || now - idle_since_ < kProbePauseMax;
    probe_pause_ = again ? std::min<nanoseconds>(2 * probe_pause_, kProbePauseMax) : kProbePauseMin;
    probe_again_ = now + probe_pause_;
    state_ = State::kBusy;
  } else {
    if (state_ != State::kIdle) idle_since_ = now;
    state_ = State::kIdle;
  }
}

}  // namespace gantry::transport
