// Keeps awake what leads from a worker's GPU to memory, where small copies come now and then: each
// of the links between two GPUs falls asleep within some 20 ms, as do parts of a GPU, and the next
// copy that needs one begins 50 to 170 us later (docs/decisions/0025). One thread.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/gpu_driver.h"
#include "sidecar/memory/gpu_devices.h"

namespace gantry::worker {

class GpuNudges {
 public:
  // Takes 2 MiB of each other GPU that is reached, and some of its own; memory of its own, as
  // nobody grants any to be read for this. Copies of any job go on beside it.
  static Result<std::unique_ptr<GpuNudges>> Create(const memory::GpuDevices& gpus);

  // Has the GPU read from the next of the others, or where there is none of its own memory, unless
  // it is still at the last time. Another part each time: the links take turns by address, so that
  // the same few bytes keep one of them awake.
  Status Nudge();
  // Whether it has read all that it was told to.
  Result<bool> IsDone() { return done_->IsReached(); }  // one never recorded is

  static constexpr uint64_t kBytes = 64 << 10;
  // Where it is read from, and to. For who knows that it IsDone.
  const std::vector<std::unique_ptr<gpu::GpuMemory>>& others() const { return others_; }
  const gpu::GpuMemory& own() const { return *own_; }

 private:
  GpuNudges() = default;
  gpu::DeviceAddress NextPart();

  std::vector<std::unique_ptr<gpu::GpuMemory>> others_;
  std::unique_ptr<gpu::GpuMemory> own_;  // what is read last, and what is read where no others are
  std::unique_ptr<gpu::GpuEvent> done_;
  std::unique_ptr<gpu::GpuStream> stream_;  // of its own: no job waits behind it; ends first
  size_t turn_ = 0;
  uint64_t part_ = 0;
};

}  // namespace gantry::worker
