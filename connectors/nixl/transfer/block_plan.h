// Ranges of one length at multiples of it, as blocks: then a transfer names block ids alone, by a
// view. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "connectors/nixl/transfer/descriptor_ranges.h"

namespace gantry::nixl {

// Pairs of buffers that move the same blocks.
struct BlockGroup {
  std::vector<LocalMemoryPointer> local;
  std::vector<std::string> remote;  // buffers, as many
  std::vector<uint64_t> local_blocks;
  std::vector<uint64_t> remote_blocks;
};

struct BlockPlan {
  uint64_t block_bytes = 0;
  std::vector<BlockGroup> groups;
  // Names the buffers in their groups and the block's length; the same for the same view.
  std::string key;
};

// `ranges`: one for each descriptor. Nothing where they are no blocks, or too few.
std::optional<BlockPlan> BlocksOf(const TransferRanges& ranges);

}  // namespace gantry::nixl
