// The bounds check and the copy of one segment. Pure functions over values that were copied out of
// shared memory before. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "sidecar/memory/gpu_memory.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::worker {

// One allocation as mapped in the copying process: host memory or GPU memory.
struct MappedBytes {
  std::byte* data = nullptr;
  uint64_t size = 0;
  bool writable = false;
  bool may_shrink = false;  // an access may be a SIGBUS
  const memory::GpuMapping* gpu = nullptr;
  // Set for pinned host memory: the GPU's address of the first byte. Never derive it from `data`.
  std::optional<gpu::DeviceAddress> pinned = {};

  // The bytes where an access may be a SIGBUS.
  std::span<const std::byte> unsealed() const {
    return {data, may_shrink ? static_cast<size_t>(size) : 0};
  }
};

// Returns why the segment may not be copied between these two; nothing when it may. Never wraps
// around.
std::optional<ErrorCode> ValidateSegment(const CopySegment& segment, const MappedBytes& source,
                                         const MappedBytes& destination);

// True when the copy should bypass the caches: many bytes, in blocks that are long enough.
bool IsStreamed(const CopySegment& segment);

// Prefetches the first bytes of a segment's blocks, since small blocks spend much time on page
// misses. Any segment is accepted; one outside of the two allocations is ignored.
void PrefetchBytes(const CopySegment& segment, const MappedBytes& source,
                   const MappedBytes& destination);

// REQUIRES that ValidateSegment accepted it and that both sides are host memory. Call FenceStreams
// before reporting the completion or unmapping. kFdTooShort: a file has lost pages of it, or its
// file system had no room for missing ones; any part may have been copied.
std::optional<ErrorCode> CopyBytes(const CopySegment& segment, const MappedBytes& source,
                                   const MappedBytes& destination);

}  // namespace gantry::worker
