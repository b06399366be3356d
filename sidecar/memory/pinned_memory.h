// Host memory that a copy worker made known to its GPU's driver: it has an address for the host and
// another one for the GPU, both this process's own. Stateless; thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/memory/host_memory.h"

namespace gantry::memory {

// What a driver says of memory that it was asked to register: an address that is null, or less of
// it than was asked for, is an error.
Status CheckPinned(const gpu::AddressRange& on_gpu, uint64_t bytes);

// The mapping outlives what is answered, which has all of it at the GPU's address, as CheckPinned
// wants it.
Result<std::unique_ptr<gpu::GpuHostMemory>> PinForGpu(gpu::GpuContext& context,
                                                      const HostMapping& mapping);

}  // namespace gantry::memory
