// The GPUs that this process uses already, whichever vendor's they are. Thread-safe.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "lib/gpu/shared/gpu_pointers.h"

namespace gantry::gpu {

// Of the vendor whose library this process has loaded already: without it there is no address of a
// GPU here. Loads no library, but initialises it where nobody has. Kept for the life of the process
// once found; not_found, when none is loaded, is looked into again at the next call; device_error
// when one is loaded and does not work.
Result<const GpuPointers*> LoadedGpuPointers();
// A device of that vendor; path_unavailable when this process uses none.
Result<std::unique_ptr<GpuWorkloadDevice>> OpenWorkloadDevice(int ordinal);

}  // namespace gantry::gpu
