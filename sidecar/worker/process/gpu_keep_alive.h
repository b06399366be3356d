// Small reads that keep the path between a worker's GPU and memory awake when copies are rare.
// Links between GPUs, and parts of a GPU, sleep after some 20 ms. The next copy then starts 50 to
// 170 us later (docs/decisions/0025). Used by one thread.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/memory/gpu_devices.h"

namespace gantry::worker {

class GpuKeepAlive {
 public:
  // Allocates 2 MiB on each other reachable GPU, and some on its own GPU. It uses its own memory,
  // since no workload grants reads for this.
  static Result<std::unique_ptr<GpuKeepAlive>> Create(const memory::GpuDevices& gpus);

  // Returns the next copy: from the next other GPU or, without one, from its own memory. Each copy
  // uses another part, since links alternate by address and the same bytes would keep only one
  // awake.
  gpu::CopyItem Next() { return {own_->range().base, NextPart(), kBytes}; }

  static constexpr uint64_t kBytes = 64 << 10;
  // Sources and destination of the reads.
  const std::vector<std::unique_ptr<gpu::GpuMemory>>& others() const { return others_; }
  const gpu::GpuMemory& own() const { return *own_; }

 private:
  GpuKeepAlive() = default;
  gpu::DeviceAddress NextPart();

  std::vector<std::unique_ptr<gpu::GpuMemory>> others_;
  // Destination of the last read; source where there are no others.
  std::unique_ptr<gpu::GpuMemory> own_;
  size_t turn_ = 0;
  uint64_t part_ = 0;
};

}  // namespace gantry::worker
