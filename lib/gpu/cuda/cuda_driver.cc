#include "lib/gpu/cuda/cuda_driver.h"

#include <utility>

#include "lib/gpu/cuda/cuda_context.h"

namespace gantry::gpu {

Result<std::unique_ptr<GpuDriver>> CudaDriver::Load(const std::string& library) {
  ASSIGN_OR_RETURN(cuda::Calls calls, cuda::Calls::Load(library));
  std::unique_ptr<CudaDriver> driver(new CudaDriver(std::move(calls)));
  const cuda::Calls& bound = *driver->calls_;
  RETURN_IF_ERROR(bound.Check(bound->driver_get_version(&driver->version_), "cuDriverGetVersion"));
  RETURN_IF_ERROR(driver->pointers_.ReadDevices());
  return driver;
}

CudaDriver::CudaDriver(cuda::Calls calls)
    : calls_(std::make_shared<const cuda::Calls>(std::move(calls))), pointers_(calls_) {}

Result<std::unique_ptr<GpuContext>> CudaDriver::OpenContext(int ordinal) {
  ASSIGN_OR_RETURN(const DeviceInfo device, pointers_.DeviceAt(ordinal));
  return CudaContext::Open(calls_, device);
}

bool CudaDriver::ReachesPeer(int ordinal, int peer) const {
  const cuda::Calls& calls = *calls_;
  cuda::Device from = 0;
  cuda::Device to = 0;
  int can = 0;
  return calls.Require(cuda::Feature::kPeerAccess) &&
         calls->device_get(&from, ordinal) == cuda::kSuccess &&
         calls->device_get(&to, peer) == cuda::kSuccess &&
         (from == to ||
          (calls->device_can_access_peer(&can, from, to) == cuda::kSuccess && can != 0));
}

}  // namespace gantry::gpu
