// The GPUs that this process uses already, whichever vendor's they are. Thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_pointers.h"

namespace gantry::gpu {

// Returns the pointers of the vendor whose library this process has loaded: without one, there is
// no address of a GPU here. Loads no library, but initialises one that is loaded. The result is
// kept for the life of the process. not_found: none is loaded, and the next call looks again;
// device_error: one is loaded and does not work.
Result<const GpuPointers*> LoadedGpuPointers();
// A device of that vendor; path_unavailable when this process uses none.
Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal);

}  // namespace gantry::gpu
