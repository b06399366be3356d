// What one segment may touch, and the copy itself. Pure functions over values that were copied out
// of shared memory before. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "sidecar/memory/gpu_memory.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::worker {

// One allocation as the copying process sees it: bytes of the host, or memory of a GPU.
struct MappedBytes {
  std::byte* data = nullptr;
  uint64_t size = 0;
  bool writable = false;
  const memory::GpuMapping* gpu = nullptr;
  // Of bytes of the host that the GPU's driver knows: where it finds the first one. An address of
  // its own kind, which nobody makes from `data`.
  std::optional<gpu::DeviceAddress> pinned = {};
};

// Why the segment may not be copied between these two; nothing when it may. Never wraps around.
std::optional<ErrorCode> ValidateSegment(const CopySegment& segment, const MappedBytes& source,
                                         const MappedBytes& destination);

// Whether its blocks go past the caches: many bytes, in blocks that are long enough.
bool IsStreamed(const CopySegment& segment);

// Asks for the first bytes of a segment to come, between the same two, before they are needed: with
// small blocks a copy spends much of its time on the way to each one's page. Any segment may be
// passed; one that does not lie within the two is left alone.
void PrefetchBytes(const CopySegment& segment, const MappedBytes& source,
                   const MappedBytes& destination);

// REQUIRES that ValidateSegment had nothing against it, and bytes of the host on both sides; and
// FenceStreams before anybody is told, or may unmap the two.
void CopyBytes(const CopySegment& segment, const MappedBytes& source,
               const MappedBytes& destination);

}  // namespace gantry::worker
