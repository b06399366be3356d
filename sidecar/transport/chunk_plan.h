// Cuts a buffer into the chunks that a NIC registers, one memory region each. Pure functions of
// lengths, independent of the NIC and the memory. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/byte_range.h"
#include "lib/base/result.h"

namespace gantry::transport {

using Chunk = ByteRange;  // within the buffer's piece

// More memory regions for one piece indicate wrong settings.
inline constexpr uint64_t kChunksMax = 1'000'000;

// All in bytes.
struct ChunkLimits {
  uint64_t device_max = 0;      // the device's max_mr_size; 0: not reported
  uint64_t override_bytes = 0;  // an operator's value, below or above the device's; 0: none
  uint64_t alignment = 4096;    // the NIC's page size, a power of two
};

// Returns the largest chunk: the override if there is one, else the device's limit, rounded down to
// the alignment. Fails if that is 0.
Result<uint64_t> ChunkBytes(const ChunkLimits& limits);

// Cuts [0, length) in order. `misalignment` is the distance from the last aligned address to the
// first byte. Seams lie on aligned addresses. So all chunks but the first and last have
// `chunk_bytes`, a multiple of the alignment. The first is shorter by the misalignment. Fails
// beyond kChunksMax.
Result<std::vector<Chunk>> PlanChunks(uint64_t length, uint64_t chunk_bytes,
                                      uint64_t misalignment = 0, uint64_t alignment = 4096);

}  // namespace gantry::transport
