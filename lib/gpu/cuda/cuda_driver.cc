#include "lib/gpu/cuda/cuda_driver.h"

#include "lib/gpu/cuda/cuda_context.h"
#include "lib/gpu/cuda/cuda_pointers.h"
#include "lib/gpu/shared/vendor_driver.h"

namespace gantry::gpu {

Result<std::unique_ptr<GpuDriver>> LoadCudaDriver(const std::string& library) {
  return VendorDriver<CudaApi, CudaPointers, CudaContext>::Load(library);
}

}  // namespace gantry::gpu
