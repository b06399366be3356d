// Plans lists of block ids: checks the ids of a group of pairs and merges neighbours. Passes runs
// or cut segments to the writer. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/plan/block_shape.h"
#include "sidecar/plan/plan_builder.h"
#include "sidecar/plan/segment_writer.h"

namespace gantry::engine {

// Number of pairs of ids in a group: the length of its longer list.
size_t ItemsOf(const BlockGroup& group);
// The request's field for the destination of an item, numbered over all groups.
std::string DestinationField(const PlanInput& input, uint32_t item);

class BlockPlanner {
 public:
  // All references outlive the planner; `writer` writes to `plan`.
  BlockPlanner(const PlanInput& input, const PlanLimits& limits, SegmentWriter& writer,
               transport::MovePlan& plan)
      : input_(input), limits_(limits), writer_(writer), plan_(plan) {}

  // Groups are added in their order.
  Status Add(const BlockGroup& group);
  // Counted after merging contiguous runs, before cutting.
  uint64_t descriptors_out() const { return descriptors_out_; }

 private:
  // One slice of one pair.
  struct SlicedPair {
    const PlanBuffer* local = nullptr;
    const PlanBuffer* remote = nullptr;
    BlockUnit unit;
  };

  // Units of the group's items on both sides, in plan order.
  struct ItemUnits {
    std::vector<uint32_t> local;
    std::vector<uint32_t> remote;
    uint32_t first_item = 0;
  };

  Status MakePairs(const BlockGroup& group);
  // Checks the ids and appends the items to the plan's order.
  Result<ItemUnits> OrderItems(const BlockGroup& group);
  std::vector<transport::BlockRun> RunsOf(const BlockShape& shape, const ItemUnits& units) const;
  // Units of every pair that fit into one chunk. 0: the pairs must be cut one by one. That is at
  // piece seams, or because a unit exceeds a chunk.
  uint64_t UnitsPerChunk() const;
  // True when, in every pair, units continue from one block of several parts into the next.
  bool BlocksJoin(bool local, uint32_t parts) const;
  Status WriteRuns(const BlockShape& shape, std::vector<transport::BlockRun> runs);
  Status CutRuns(const BlockShape& shape, const std::vector<transport::BlockRun>& runs);

  const PlanInput& input_;
  const PlanLimits& limits_;
  SegmentWriter& writer_;
  transport::MovePlan& plan_;
  std::vector<SlicedPair> pairs_;  // the current group's
  uint64_t descriptors_out_ = 0;
};

}  // namespace gantry::engine
