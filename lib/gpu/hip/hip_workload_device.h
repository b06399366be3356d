// An AMD GPU as the workload's own code uses it. Thread-safe.
#pragma once

#include "lib/gpu/hip/hip_device.h"
#include "lib/gpu/shared/vendor_workload_device.h"

namespace gantry::gpu {

class HipWorkloadDevice final : public VendorWorkloadDevice<HipApi> {
 public:
  using VendorWorkloadDevice::VendorWorkloadDevice;
  Result<uint64_t> IdOf(StreamHandle stream) const override;

 private:
  // Whose it is, in this process.
  Result<int> OrdinalOf(StreamHandle stream) const;
};

}  // namespace gantry::gpu
