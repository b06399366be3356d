// The part of a plan that lists of block ids ask for: checks the ids of a group of pairs, merges
// neighbours and hands runs or cut segments to the writer. Used by one thread at a time.
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

// The items of a group are the pairs of ids: as many as its longer list has.
size_t ItemsOf(const BlockGroup& group);
// The field of the request that names the destination of an item, of all groups in a row.
std::string DestinationField(const PlanInput& input, uint32_t item);

class BlockPlanner {
 public:
  // All of these outlive the planner; the writer is the plan's.
  BlockPlanner(const PlanInput& input, const PlanLimits& limits, SegmentWriter& writer,
               transport::MovePlan& plan)
      : input_(input), limits_(limits), writer_(writer), plan_(plan) {}

  // The groups are added in their order.
  Status Add(const BlockGroup& group);
  // After merging contiguous runs, before cutting.
  uint64_t descriptors_out() const { return descriptors_out_; }

 private:
  // One slice of one pair.
  struct SlicedPair {
    const PlanBuffer* local = nullptr;
    const PlanBuffer* remote = nullptr;
    BlockUnit unit;
  };

  // The units of the group's items on both sides, in the order of the plan.
  struct ItemUnits {
    std::vector<uint32_t> local;
    std::vector<uint32_t> remote;
    uint32_t first_item = 0;
  };

  Status MakePairs(const BlockGroup& group);
  // Checks the ids and adds the items to the plan's order.
  Result<ItemUnits> OrderItems(const BlockGroup& group);
  std::vector<transport::BlockRun> RunsOf(const BlockShape& shape, const ItemUnits& units) const;
  // How many units of every pair fit into one chunk; 0 when the pairs must be cut one by one:
  // at the seams of pieces, or because a single unit is longer than a chunk.
  uint64_t UnitsPerChunk() const;
  // Whether units go on from one block of several parts into the next, in every pair.
  bool BlocksJoin(bool local, uint32_t parts) const;
  Status WriteRuns(const BlockShape& shape, std::vector<transport::BlockRun> runs);
  Status CutRuns(const BlockShape& shape, const std::vector<transport::BlockRun>& runs);

  const PlanInput& input_;
  const PlanLimits& limits_;
  SegmentWriter& writer_;
  transport::MovePlan& plan_;
  std::vector<SlicedPair> pairs_;  // of the group that is being added
  uint64_t descriptors_out_ = 0;
};

}  // namespace gantry::engine
