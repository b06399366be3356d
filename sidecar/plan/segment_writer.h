// Cuts flat runs between two buffers at the seams of both sides' pieces and at the chunk limit,
// and appends the segments to a plan. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidecar/plan/plan_builder.h"

namespace gantry::engine {

// `count` items of `item_bytes` that follow each other in both buffers at their strides; equal
// stride and item_bytes on both sides make one contiguous run.
struct ItemRun {
  uint64_t local_offset = 0;  // flat, of the first item
  uint64_t remote_offset = 0;
  uint64_t item_bytes = 0;
  uint64_t local_stride = 0;
  uint64_t remote_stride = 0;
  uint32_t count = 1;
  uint32_t first_item = 0;
  // A merged range may cover several items of different lengths: then count is 1 and this says
  // how many items the bytes stand for.
  uint32_t items_in_one = 1;
};

class SegmentWriter {
 public:
  SegmentWriter(const PlanLimits& limits, SegmentReservation* reservation,
                transport::MovePlan* plan);

  // REQUIRES that every item lies within both buffers. Fails when the plan becomes too large.
  Status Append(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  // So many segments will be added, or more. Fails when they are too many.
  Status Expect(uint64_t segments);
  // The runs' units, whose offsets in `flat` are flat. The same as appending them run by run.
  Status AppendUnits(const PlanBuffer& local, const PlanBuffer& remote,
                     const transport::BlockPair& flat, std::span<const transport::BlockRun> runs);
  // Where nothing has to be cut: each run in each pair is one segment.
  Status AddRuns(std::vector<transport::BlockPair> pairs, std::vector<transport::BlockRun> runs);

 private:
  Status AppendContiguous(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  Status AppendStrided(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  Status Add(const transport::MoveSegment& segment);
  // Room for so many more segments, of which the plan keeps `kept` in memory.
  Status Reserve(uint64_t segments, uint64_t kept);

  const uint64_t chunk_bytes_max_;
  const uint64_t segments_max_;
  uint64_t kept_ = 0;
  uint64_t segments_ = 0;  // that there is room for
  uint64_t unused_ = 0;    // of these
  SegmentReservation& reservation_;
  transport::MovePlan& plan_;
};

}  // namespace gantry::engine
