// Blocks as benchmarks of plans name them: in a row on both sides, or strewn over them, the same in
// every run. Stateless; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "sidecar/plan/move_plan.h"

namespace gantry::transport {

enum BlockOrder : int64_t { kRandom, kContiguous };

// So many single blocks, among `places` on each side.
inline std::vector<BlockRun> SingleBlocks(BlockOrder order, uint32_t blocks, uint32_t places) {
  std::vector<uint32_t> here(places);
  std::iota(here.begin(), here.end(), 0);
  std::vector<uint32_t> there = here;
  std::mt19937 random(7);
  if (order == kRandom) {
    std::shuffle(here.begin(), here.end(), random);
    std::shuffle(there.begin(), there.end(), random);
  }
  std::vector<BlockRun> runs;
  for (uint32_t i = 0; i < blocks; ++i) runs.push_back({here[i], there[i], 1, i});
  return runs;
}

// A buffer of blocks of so many bytes on each side.
inline BlockPair BlocksOfBytes(uint64_t bytes) {
  BlockPair pair;
  pair.unit_bytes = pair.local_stride = pair.remote_stride = bytes;
  return pair;
}

}  // namespace gantry::transport
