// An NVIDIA GPU as the workload's own code uses it. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/gpu_workload_device.h"

namespace gantry::gpu {

class CudaWorkloadDevice final : public GpuWorkloadDevice {
 public:
  explicit CudaWorkloadDevice(std::shared_ptr<const CudaPrimary> primary)
      : primary_(std::move(primary)) {}
  Result<std::unique_ptr<GpuPinnedMemory>> Pin(void* data, uint64_t bytes) override;
  Status CheckStreamWrites() const override;
  Result<uint64_t> IdOf(StreamHandle stream) const override;
  Status WriteWhenDone(StreamHandle stream, DeviceAddress to, uint64_t value) override;

 private:
  Status CheckNotReset() const;
  Status CheckCurrent() const;

  const std::shared_ptr<const CudaPrimary> primary_;
};

}  // namespace gantry::gpu
