#include "sidecar/memory/pinned_memory.h"

#include <string>
#include <utility>

namespace gantry::memory {

Status CheckPinned(const gpu::AddressRange& on_gpu, uint64_t bytes) {
  if (on_gpu.base == gpu::DeviceAddress{0}) {
    return Fail(ErrorCode::kDeviceError,
                "the GPU's driver registered host memory and has no address for it");
  }
  if (on_gpu.size < bytes) {
    return Fail(ErrorCode::kDeviceError, "the GPU's driver registered " +
                                             std::to_string(on_gpu.size) + " bytes of " +
                                             std::to_string(bytes));
  }
  return {};
}

Result<std::unique_ptr<gpu::GpuHostMemory>> PinForGpu(gpu::GpuContext& context,
                                                      const HostMapping& mapping) {
  ASSIGN_OR_RETURN(auto pinned, context.RegisterHost(mapping.data(), mapping.size()));
  Status checked = CheckPinned(pinned->range(), mapping.size());
  if (checked) return pinned;
  const Status unpinned = pinned->Unregister();
  if (!unpinned) checked.error().message += "; then: " + unpinned.error().message;
  return Fail(std::move(checked.error()));
}

}  // namespace gantry::memory
