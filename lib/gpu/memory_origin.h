// What kinds of memory are called where somebody is told that one cannot be shared. Thread-safe.
#pragma once

#include <string_view>

#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu {

// What memory is, and why it is not shared if it is not: "stream-ordered memory (cudaMallocAsync,
// hipMallocAsync), which has no handle".
std::string_view DescriptionOf(MemoryOrigin origin);

// Why no other process can open memory on the device, as "it is ..."; empty: others can.
std::string_view WhyNotShared(const DeviceInfo& device);

// What to allocate instead of memory of a GPU that cannot be shared.
inline constexpr std::string_view kShareableMemory =
    "memory of cudaMalloc or hipMalloc, or virtual memory that was made with POSIX file "
    "descriptors, such as PyTorch's expandable segments";

// How pinned memory of the host becomes plain memory again.
inline constexpr std::string_view kUnpin = "unpin it first (cudaHostUnregister, hipHostUnregister)";

}  // namespace gantry::gpu
