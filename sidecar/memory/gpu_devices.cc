#include "sidecar/memory/gpu_devices.h"

#include <utility>

#include "lib/base/log.h"
#include "lib/gpu/gpu_drivers.h"

namespace gantry::memory {

Status GpuDevices::Load() {
  if (driver_ != nullptr) return {};
  ASSIGN_OR_RETURN(driver_, gpu::LoadGpuDriver());
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
  return Fail(ErrorCode::kNotFound, "a GPU driver is installed, but it sees no GPU",
              "in a container, ask for the devices of the workload's GPUs");
}

Result<std::shared_ptr<gpu::GpuContext>> GpuDevices::ContextFor(const std::string& uuid) {
  RETURN_IF_ERROR(Load());
  for (const gpu::DeviceInfo& device : driver_->devices()) {
    if (device.uuid != uuid) continue;
    if (context_ == nullptr) {
      ASSIGN_OR_RETURN(context_, driver_->OpenContext(device.ordinal));
    }
    return context_;
  }
  return Fail(ErrorCode::kPathUnavailable, "GPU " + uuid + " is not visible to this sidecar",
              "give the sidecar's container the GPUs of its workload and of its namespace's peers");
}

}  // namespace gantry::memory
