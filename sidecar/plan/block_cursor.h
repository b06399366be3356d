// Iterates over a plan's blocks for a transport that moves parts of limited size. A block that fits
// into one part is not split. The plan outlives it. Used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sidecar/plan/move_plan.h"

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

  explicit BlockCursor(const MovePlan& plan) : plan_(plan), at_(plan.segments.begin()) {
    if (!at_end()) segment_ = *at_;
  }

  bool at_end() const { return index_ == plan_.segments.size(); }
  // Returns the bytes at the cursor for a part of at most `part_bytes` with `room` left. Nothing:
  // the part is full. REQUIRES !at_end().
  std::optional<Stretch> Peek(uint64_t room, uint64_t part_bytes) const {
    const uint64_t left = segment_.length - within_;
    if (room == 0 || (left > room && segment_.length <= part_bytes)) return std::nullopt;
    return Stretch{static_cast<uint32_t>(index_),
                   segment_.local_allocation,
                   segment_.remote_allocation,
                   segment_.local_offset + block_ * segment_.local_stride + within_,
                   segment_.remote_offset + block_ * segment_.remote_stride + within_,
                   std::min(left, room)};
  }
  // Advances past the result of Peek.
  void Pass(const Stretch& stretch) {
    within_ += stretch.length;
    if (within_ < segment_.length) return;
    within_ = 0;
    if (++block_ < segment_.count) return;
    block_ = 0;
    ++index_;
    ++at_;
    if (!at_end()) segment_ = *at_;
  }

 private:
  const MovePlan& plan_;
  SegmentList::Iterator at_;
  size_t index_ = 0;  // index of at_
  MoveSegment segment_;
  uint32_t block_ = 0;   // index within the segment
  uint64_t within_ = 0;  // bytes within the block
};

}  // namespace gantry::transport
