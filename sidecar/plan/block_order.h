// Lists of block ids: which of them repeat, and the order in which they rise. Pure functions;
// thread-safe. They run for every transfer and cost a few nanoseconds an id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gantry::engine {

// A copy of the ids in half of the memory; empty when one is not below `blocks`, of which there are
// fewer than 2^32.
std::vector<uint32_t> NarrowIds(std::span<const uint64_t> ids, uint64_t blocks);

struct BlockOrder {
  std::vector<uint32_t> ids;        // rising
  std::vector<uint32_t> positions;  // where each stood; empty: they were rising. Of equals in order
  bool distinct = false;
};

// REQUIRES that all ids are below `blocks`.
BlockOrder OrderBlocks(std::vector<uint32_t> ids, uint64_t blocks);

// Whether no id is there twice. REQUIRES that all ids are below `blocks`.
bool AreDistinct(std::span<const uint32_t> ids, uint64_t blocks);

}  // namespace gantry::engine
