// Groups pairs of buffers that lie at constant steps on both sides, such as a cache's layers in one
// allocation. A run is the same in all of them, so one strided copy moves it. Pure functions;
// thread-safe.
#pragma once

#include <cstddef>
#include <vector>

#include "sidecar/plan/row_limits.h"
#include "sidecar/plan/segment_list.h"

namespace gantry::engine {

// Each run is to be moved in each pair.
struct RunsOfPairs {
  std::vector<transport::BlockPair> pairs;
  std::vector<transport::BlockRun> runs;
};

// Returns the same blocks of the same pairs, in few sets. Each copy has as many rows as the limits
// allow. `all` lists the pairs slice by slice, for `slices` slices. REQUIRES limits.any().
std::vector<RunsOfPairs> GroupRows(RunsOfPairs all, size_t slices,
                                   const transport::RowLimits& limits);

}  // namespace gantry::engine
