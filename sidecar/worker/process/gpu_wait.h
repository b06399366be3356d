// Waits for a GPU in a copy worker by polling. GPU copies take microseconds; a wait inside the
// driver takes tens of them. Stateless; thread-safe.
#pragma once

#include "lib/base/clock.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::worker {

// Backoff between two polls: yields at first, sleeps briefly later.
class GpuPatience {
 public:
  void Pause();
  void Reset() { since_ = TimePoint(); }

 private:
  TimePoint since_;
};

// Polls until the event is reached. An event that was never recorded counts as reached.
Status AwaitGpu(gpu::GpuEvent& mark);

}  // namespace gantry::worker
