#include "lib/gpu/memory_origin.h"

#include "lib/gpu/cuda/mig_slice.h"

namespace gantry::gpu {

std::string_view DescriptionOf(MemoryOrigin origin) {
  switch (origin) {
    case MemoryOrigin::kUnknown:
      break;
    case MemoryOrigin::kDevice:
      return "memory of a GPU (cudaMalloc, hipMalloc)";
    case MemoryOrigin::kVirtual:
      return "virtual memory of a GPU";
    case MemoryOrigin::kPool:
      return "stream-ordered memory (cudaMallocAsync, hipMallocAsync), which has no handle";
    case MemoryOrigin::kManaged:
      return "managed memory (cudaMallocManaged, hipMallocManaged), which migrates and has no "
             "handle";
    case MemoryOrigin::kPinned:
      return "pinned memory of the host (cudaHostAlloc, cudaHostRegister), which no descriptor "
             "stands for";
  }
  return "memory that the GPU driver does not know (malloc, mmap)";
}

std::string_view WhyNotShared(const DeviceInfo& device) {
  if (!device.uuid.starts_with(kMigPrefix)) return {};
  return "it is a MIG slice of a GPU, which shares no memory with others";
}

}  // namespace gantry::gpu
