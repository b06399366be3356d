// Which vendor's GPUs the tests of this process have. Stateless; thread-safe.
#pragma once

#include "lib/base/dynamic_library.h"
#include "lib/gpu/cuda/cuda_calls.h"

namespace gantry::testing {

// REQUIRES that a driver is loaded, or is about to be by whoever asks.
inline bool IsAmd() { return !DynamicLibrary::OpenLoaded(gpu::cuda::kLibrary); }

}  // namespace gantry::testing
