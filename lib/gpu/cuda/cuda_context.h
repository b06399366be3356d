// A GPU's primary context as this process uses it: the one that the workload's runtime has, too.
// Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "lib/gpu/cuda/cuda_primary.h"
#include "lib/gpu/shared/vendor_context.h"

namespace gantry::gpu {

class CudaContext final : public VendorContext<CudaApi> {
 public:
  static Result<std::unique_ptr<GpuContext>> Open(std::shared_ptr<const cuda::Calls> calls,
                                                  const DeviceInfo& device);

  Result<std::unique_ptr<GpuMemory>> MapDmaBuf(const DmaBufPart& part) override;
  Result<std::unique_ptr<GpuMemory>> AllocateOn(int ordinal, uint64_t bytes) override;
  Status TrimForCopies() override;

 private:
  explicit CudaContext(std::shared_ptr<const CudaPrimary> primary)
      : VendorContext(std::move(primary)) {}
};

}  // namespace gantry::gpu
