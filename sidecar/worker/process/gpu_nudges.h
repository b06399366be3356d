// What a worker's GPU reads to keep awake what leads from it to memory, where small copies come now
// and then: each of the links between two GPUs falls asleep within some 20 ms, as do parts of a
// GPU, and the next copy that needs one begins 50 to 170 us later (docs/decisions/0025). One
// thread.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/memory/gpu_devices.h"

namespace gantry::worker {

class GpuNudges {
 public:
  // Takes 2 MiB of each other GPU that is reached, and some of its own; memory of its own, as
  // nobody grants any to be read for this.
  static Result<std::unique_ptr<GpuNudges>> Create(const memory::GpuDevices& gpus);

  // To be copied next: from the next of the others, or where there is none from memory of its own.
  // Another part each time: the links take turns by address, so that the same few bytes keep one of
  // them awake.
  gpu::CopyItem Next() { return {own_->range().base, NextPart(), kBytes}; }

  static constexpr uint64_t kBytes = 64 << 10;
  // Where it is read from, and to.
  const std::vector<std::unique_ptr<gpu::GpuMemory>>& others() const { return others_; }
  const gpu::GpuMemory& own() const { return *own_; }

 private:
  GpuNudges() = default;
  gpu::DeviceAddress NextPart();

  std::vector<std::unique_ptr<gpu::GpuMemory>> others_;
  std::unique_ptr<gpu::GpuMemory> own_;  // what is read last, and what is read where no others are
  size_t turn_ = 0;
  uint64_t part_ = 0;
};

}  // namespace gantry::worker
