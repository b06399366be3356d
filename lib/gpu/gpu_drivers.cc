#include "lib/gpu/gpu_drivers.h"

#include "lib/gpu/cuda_driver.h"

namespace gantry::gpu {
namespace {

struct Vendor {
  const char* library;
  Result<std::unique_ptr<GpuDriver>> (*load)(const std::string& library);
};
constexpr Vendor kVendors[] = {{cuda::kLibrary, CudaDriver::Load}};

}  // namespace

Result<std::unique_ptr<GpuDriver>> LoadGpuDriver() {
  std::string said;
  for (const Vendor& vendor : kVendors) {
    auto driver = vendor.load(vendor.library);
    if (driver || driver.error().code != ErrorCode::kNotFound) return driver;
    said += (said.empty() ? "" : "; ") + driver.error().message;
  }
  return Fail(ErrorCode::kNotFound, "no GPU driver: " + said,
              "on a machine without GPUs nothing is wrong; in a container, ask for the driver's "
              "libraries and devices");
}

}  // namespace gantry::gpu
