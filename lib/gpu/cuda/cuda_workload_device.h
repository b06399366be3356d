// An NVIDIA GPU as the workload's own code uses it. Thread-safe.
#pragma once

#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/vendor_workload_device.h"

namespace gantry::gpu {

class CudaWorkloadDevice final : public VendorWorkloadDevice<CudaApi> {
 public:
  using VendorWorkloadDevice::VendorWorkloadDevice;
  Result<uint64_t> IdOf(StreamHandle stream) const override;

 private:
  Status CheckCurrent() const;
};

}  // namespace gantry::gpu
