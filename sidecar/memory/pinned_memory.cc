#include "sidecar/memory/pinned_memory.h"

#include <string>
#include <utility>

namespace gantry::memory {

Result<std::unique_ptr<gpu::GpuMemory>> PinForGpu(gpu::GpuContext& context,
                                                  const HostMapping& mapping) {
  ASSIGN_OR_RETURN(auto pinned, context.RegisterHost(mapping.data(), mapping.size()));
  const gpu::AddressRange range = pinned->range();
  if (range.base == gpu::DeviceAddress{0}) {
    return Fail(ErrorCode::kDeviceError,
                "the GPU's driver registered host memory and has no address for it");
  }
  if (range.size < mapping.size()) {
    return Fail(ErrorCode::kDeviceError, "the GPU's driver registered " +
                                             std::to_string(range.size) + " bytes of " +
                                             std::to_string(mapping.size()));
  }
  return pinned;
}

}  // namespace gantry::memory
