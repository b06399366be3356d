// How a buffer is cut into the chunks that a NIC registers, each one memory region: a pure function
// of lengths, whichever NIC and whichever memory it is. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/byte_range.h"
#include "lib/base/result.h"

namespace gantry::transport {

using Chunk = ByteRange;  // within the buffer's piece

// More memory regions than this of one piece are a mistake of settings.
inline constexpr uint64_t kChunksMax = 1'000'000;

// All in bytes.
struct ChunkLimits {
  uint64_t device_max = 0;      // max_mr_size as the device tells; 0: it tells none
  uint64_t override_bytes = 0;  // an operator's, below or above what the device tells; 0: none
  uint64_t alignment = 4096;    // a power of two, the page that the NIC maps
};

// The largest chunk: the override where there is one, else the device's limit, rounded down to the
// alignment. Fails where nothing is left of it.
Result<uint64_t> ChunkBytes(const ChunkLimits& limits);

// Cuts [0, length) in order. `misalignment`: from the last aligned address to the first byte. Seams
// lie on aligned addresses, so all chunks but the first and the last are `chunk_bytes` long, a
// multiple of the alignment, and the first is shorter by the misalignment. Fails beyond kChunksMax.
Result<std::vector<Chunk>> PlanChunks(uint64_t length, uint64_t chunk_bytes,
                                      uint64_t misalignment = 0, uint64_t alignment = 4096);

}  // namespace gantry::transport
