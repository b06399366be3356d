#include "lib/gpu/hip/hip_driver.h"

#include <utility>

#include "lib/gpu/hip/hip_context.h"

namespace gantry::gpu {

Result<std::unique_ptr<GpuDriver>> HipDriver::Load(const std::string& library) {
  ASSIGN_OR_RETURN(hip::Calls calls, hip::Calls::Load(library));
  std::unique_ptr<HipDriver> driver(new HipDriver(std::move(calls)));
  RETURN_IF_ERROR(driver->pointers_.ReadDevices());
  return driver;
}

HipDriver::HipDriver(hip::Calls calls)
    : calls_(std::make_shared<const hip::Calls>(std::move(calls))), pointers_(calls_) {}

Result<std::unique_ptr<GpuContext>> HipDriver::OpenContext(int ordinal) {
  ASSIGN_OR_RETURN(const DeviceInfo device, pointers_.DeviceAt(ordinal));
  return HipContext::Open(calls_, device);
}

bool HipDriver::ReachesPeer(int ordinal, int peer) const {
  const hip::Calls& calls = *calls_;
  int can = 0;
  return ordinal == peer ||
         (calls.Require(hip::Feature::kPeerAccess) &&
          calls->device_can_access_peer(&can, ordinal, peer) == hip::kSuccess && can != 0);
}

}  // namespace gantry::gpu
