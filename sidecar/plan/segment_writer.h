// Cuts flat runs between two buffers at piece seams of both sides and at the chunk limit. Appends
// the segments to a plan. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sidecar/plan/plan_builder.h"

namespace gantry::engine {

// `count` items of `item_bytes`, at a constant stride in each buffer. If stride equals item_bytes
// on both sides, they form one contiguous run.
struct ItemRun {
  uint64_t local_offset = 0;  // flat offset of the first item
  uint64_t remote_offset = 0;
  uint64_t item_bytes = 0;
  uint64_t local_stride = 0;
  uint64_t remote_stride = 0;
  uint32_t count = 1;
  uint32_t first_item = 0;
  // A merged range may cover items of different lengths: then count is 1, and this is their number.
  uint32_t items_in_one = 1;
};

class SegmentWriter {
 public:
  SegmentWriter(const PlanLimits& limits, SegmentReservation* reservation,
                transport::MovePlan* plan);

  // REQUIRES that every item lies within both buffers. Fails when the plan exceeds its limits.
  Status Append(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  // Reserves room for at least `segments` more. Fails beyond the limit.
  Status Expect(uint64_t segments);
  // Appends all units of `runs` between the buffers, whose flat offsets are in `flat`. Equals
  // appending them one by one.
  Status AppendUnits(const PlanBuffer& local, const PlanBuffer& remote,
                     const transport::BlockPair& flat, std::span<const transport::BlockRun> runs);
  // Appends each run of each pair as one segment, uncut.
  Status AddRuns(std::vector<transport::BlockPair> pairs, std::vector<transport::BlockRun> runs);

 private:
  Status AppendContiguous(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  Status AppendStrided(const PlanBuffer& local, const PlanBuffer& remote, const ItemRun& run);
  Status Add(const transport::MoveSegment& segment);
  // Reserves room for `segments` more, of which the plan stores `kept`.
  Status Reserve(uint64_t segments, uint64_t kept);

  const uint64_t chunk_bytes_max_;
  const uint64_t segments_max_;
  uint64_t kept_ = 0;
  uint64_t segments_ = 0;  // reserved
  uint64_t unused_ = 0;    // reserved but unused
  SegmentReservation& reservation_;
  transport::MovePlan& plan_;
};

}  // namespace gantry::engine
