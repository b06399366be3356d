// Kernels become code for an AMD GPU when they are loaded, by the compiler that ROCm has as a
// library. Stateless; thread-safe.
#pragma once

#include <string>

#include "lib/gpu/hip/hip_calls.h"

namespace gantry::gpu {

// What hipModuleLoadData takes; `definition` as compilers take it, "-DNAME=1". A failure says what
// the compiler wrote. REQUIRES kKernels.
Result<std::string> CompileForCurrentDevice(const hip::Calls& calls, const char* source,
                                            const char* name, const std::string& definition);

}  // namespace gantry::gpu
