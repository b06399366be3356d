#include "sidecar/memory/gpu_devices.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/gpu_drivers.h"

namespace gantry::memory {

Status GpuDevices::Load() {
  if (driver_ != nullptr) return {};
  Result<std::unique_ptr<gpu::GpuDriver>> driver = gpu::LoadGpuDriver();
  if (!driver && driver.error().code == ErrorCode::kNotFound) {
    return Fail(ErrorCode::kPathUnavailable, driver.error().message, driver.error().hint);
  }
  ASSIGN_OR_RETURN(driver_, std::move(driver));
  for (const std::string& feature : driver_->missing()) {
    log::Info("the GPU driver lacks a feature", {{"missing", feature}});
  }
  return {};
}

Result<std::vector<std::string>> GpuDevices::Uuids() {
  RETURN_IF_ERROR(Load());
  std::vector<std::string> uuids;
  for (const gpu::DeviceInfo& device : driver_->devices()) uuids.push_back(device.uuid);
  if (!uuids.empty()) return uuids;
  return Fail(ErrorCode::kPathUnavailable, "a GPU driver is installed, but it sees no GPU",
              "in a container, ask for the devices of the workload's GPUs");
}

Result<std::shared_ptr<gpu::GpuContext>> GpuDevices::ContextFor(const std::string& uuid) {
  RETURN_IF_ERROR(Load());
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    if (device.uuid != uuid) continue;
    if (context_ == nullptr) {
      ASSIGN_OR_RETURN(context_, driver_->OpenContext(device.ordinal));
      // Here, as it takes a tenth of a second, and not under the first transfer, which does without
      // if it has to.
      static_cast<void>(context_->LoadKernels());
    }
    return context_;
  }
  return Fail(ErrorCode::kPathUnavailable, "GPU " + uuid + " is not visible to this sidecar",
              "give the sidecar's container the GPUs of its workload and of its namespace's peers");
}

}  // namespace gantry::memory
