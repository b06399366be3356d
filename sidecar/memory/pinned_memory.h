// Host memory that a copy worker made known to its GPU's driver: it has an address for the host and
// another one for the GPU, both this process's own. Stateless; thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/gpu_driver.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::memory {

// The mapping outlives what is answered, which has all of it at the GPU's address. What the driver
// says of it is checked: an address that is null, or less of it than was asked for, is an error.
Result<std::unique_ptr<gpu::GpuMemory>> PinForGpu(gpu::GpuContext& context,
                                                  const HostMapping& mapping);

}  // namespace gantry::memory
