// Order and uniqueness of block ids. Pure functions; thread-safe. They run for every transfer and
// cost a few nanoseconds per id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gantry::engine {

// Copies the ids to 32 bits. Empty when an id is not below `blocks`. REQUIRES blocks < 2^32.
std::vector<uint32_t> NarrowIds(std::span<const uint64_t> ids, uint64_t blocks);

struct BlockOrder {
  std::vector<uint32_t> ids;  // ascending
  // Original indices, stable for equal ids; empty: ids were ascending.
  std::vector<uint32_t> positions;
  bool distinct = false;
};

// REQUIRES that all ids are below `blocks`.
BlockOrder OrderBlocks(std::vector<uint32_t> ids, uint64_t blocks);

// Returns true when no id repeats. REQUIRES that all ids are below `blocks`.
bool AreDistinct(std::span<const uint32_t> ids, uint64_t blocks);

}  // namespace gantry::engine
