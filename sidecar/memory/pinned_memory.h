// Host memory that a copy worker registered with its GPU's driver. It has a host address and a GPU
// address, both valid in this process only. Stateless; thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::memory {

// Checks a driver's answer to a registration: a null address or a shorter range is an error.
Status CheckPinned(const gpu::AddressRange& on_gpu, uint64_t bytes);

// Registers the whole mapping, checked by CheckPinned. The mapping outlives the result.
Result<std::unique_ptr<gpu::GpuHostMemory>> PinForGpu(gpu::GpuContext& context,
                                                      const HostMapping& mapping);

}  // namespace gantry::memory
