// An AMD GPU as the workload's own code uses it. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/gpu_workload_device.h"

namespace gantry::gpu {

class HipWorkloadDevice final : public GpuWorkloadDevice {
 public:
  explicit HipWorkloadDevice(std::shared_ptr<const HipDevice> device)
      : device_(std::move(device)) {}
  Result<std::unique_ptr<GpuPinnedMemory>> Pin(void* data, uint64_t bytes) override;
  Status CheckStreamWrites() const override;
  Result<uint64_t> IdOf(StreamHandle stream) const override;
  Status WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) override;

 private:
  // Whose it is, in this process.
  Result<int> OrdinalOf(StreamHandle stream) const;

  const std::shared_ptr<const HipDevice> device_;
};

}  // namespace gantry::gpu
