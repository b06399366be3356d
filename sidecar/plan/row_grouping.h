// Pairs of buffers that lie at one step from each other on both sides, as the layers of a cache in
// one allocation do: what a run is in one of them it is in all, and one copy of rows moves it. Pure
// functions; thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "sidecar/plan/row_limits.h"
#include "sidecar/plan/segment_list.h"

namespace gantry::engine {

// Each run is to be moved in each of the pairs.
struct RunsOfPairs {
  std::vector<transport::BlockPair> pairs;
  std::vector<transport::BlockRun> runs;
};

// The same blocks of the same pairs, with as many rows in each copy as the limits allow. Few sets.
// The pairs are those of one slice of all buffers after those of another, of so many slices.
// REQUIRES limits.any().
std::vector<RunsOfPairs> GroupRows(RunsOfPairs all, size_t slices,
                                   const transport::RowLimits& limits);

}  // namespace gantry::engine
