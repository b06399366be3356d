// Waiting for a GPU in a copy worker: by asking, as work between GPUs takes microseconds and a wait
// inside of the driver tens of them. Stateless; thread-safe.
#pragma once

#include "lib/base/clock.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::worker {

// Yields at first and sleeps a little after a while: call it between two looks.
class GpuPatience {
 public:
  void Pause();
  void Reset() { since_ = TimePoint(); }

 private:
  TimePoint since_;
};

// Returns when the mark is reached; one that was never recorded is.
Status AwaitGpu(gpu::GpuEvent& mark);

}  // namespace gantry::worker
