// Walks over the blocks of a plan for a transport that moves parts of some size: a block stays
// whole where it fits into one. The plan outlives it. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sidecar/transport/move_plan.h"

namespace gantry::transport {

class BlockCursor {
 public:
  // Bytes of one block.
  struct Stretch {
    uint32_t segment = 0;
    uint32_t local_allocation = 0;
    uint32_t remote_allocation = 0;
    uint64_t local_offset = 0;
    uint64_t remote_offset = 0;
    uint64_t length = 0;
  };

  explicit BlockCursor(const MovePlan& plan) : plan_(plan) {}

  bool at_end() const { return segment_ == plan_.segments.size(); }
  // What lies under the cursor, for a part of at most `part_bytes` that has `room` left; none: it
  // is full. REQUIRES !at_end().
  std::optional<Stretch> Look(uint64_t room, uint64_t part_bytes) const {
    const MoveSegment segment = plan_.segments[segment_];
    const uint64_t left = segment.length - within_;
    if (room == 0 || (left > room && segment.length <= part_bytes)) return std::nullopt;
    return Stretch{static_cast<uint32_t>(segment_),
                   segment.local_allocation,
                   segment.remote_allocation,
                   segment.local_offset + block_ * segment.local_stride + within_,
                   segment.remote_offset + block_ * segment.remote_stride + within_,
                   std::min(left, room)};
  }
  // Passes what Look gave.
  void Pass(const Stretch& stretch) {
    within_ += stretch.length;
    const MoveSegment segment = plan_.segments[segment_];
    if (within_ < segment.length) return;
    within_ = 0;
    if (++block_ < segment.count) return;
    block_ = 0;
    ++segment_;
  }

 private:
  const MovePlan& plan_;
  size_t segment_ = 0;
  uint32_t block_ = 0;   // of the segment
  uint64_t within_ = 0;  // the block
};

}  // namespace gantry::transport
