#include "lib/gpu/hip/hip_driver.h"

#include "lib/gpu/hip/hip_context.h"
#include "lib/gpu/hip/hip_pointers.h"
#include "lib/gpu/shared/vendor_driver.h"

namespace gantry::gpu {

Result<std::unique_ptr<GpuDriver>> LoadHipDriver(const std::string& library) {
  return VendorDriver<HipApi, HipPointers, HipContext>::Load(library);
}

}  // namespace gantry::gpu
