#include "lib/gpu/gpu_drivers.h"

#include <string>

#include "lib/gpu/gpu_vendors.h"

namespace gantry::gpu {
namespace {

// The first of a vendor's libraries that is installed.
Result<std::unique_ptr<GpuDriver>> Load(const GpuVendor& vendor) {
  std::string said;
  for (const char* const library : vendor.libraries) {
    auto driver = vendor.load(library);
    if (driver || driver.error().code != ErrorCode::kNotFound) return driver;
    if (said.empty()) said = driver.error().message;
  }
  return Fail(ErrorCode::kNotFound, std::move(said));
}

}  // namespace

// A vendor's library without a GPU is no reason not to look at the next vendor's.
Result<std::unique_ptr<GpuDriver>> LoadGpuDriver() {
  std::string said;
  std::unique_ptr<GpuDriver> without_gpus;
  Status failed;
  for (const GpuVendor& vendor : GpuVendors()) {
    auto driver = Load(vendor);
    if (driver && !(*driver)->devices().empty()) return driver;
    if (driver) {
      if (without_gpus == nullptr) without_gpus = *std::move(driver);
    } else if (driver.error().code == ErrorCode::kNotFound) {
      said += (said.empty() ? "" : "; ") + driver.error().message;
    } else if (failed) {
      failed = Fail(std::move(driver).error());
    }
  }
  if (!failed) return Fail(std::move(failed).error());
  if (without_gpus != nullptr) return without_gpus;
  return Fail(ErrorCode::kNotFound, "no GPU driver: " + said,
              "on a machine without GPUs nothing is wrong; in a container, ask for the driver's "
              "libraries and devices");
}

}  // namespace gantry::gpu
