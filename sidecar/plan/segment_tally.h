// Tracks which segments of a plan have moved, reported in parts of any order. The plan outlives it.
// Used by one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sidecar/plan/move_plan.h"

namespace gantry::transport {

class SegmentTally {
 public:
  struct Piece {
    uint32_t segment = 0;
    uint64_t bytes = 0;
  };

  explicit SegmentTally(const MovePlan& plan) : plan_(plan), done_(plan.segments.size()) {}

  // Reports newly moved bytes. Returns true when they complete their segment.
  bool Add(const Piece& piece) {
    const uint64_t all = plan_.segments[piece.segment].bytes();
    if (piece.bytes < all) {
      const auto [left, added] = left_.try_emplace(piece.segment, all);
      left->second -= piece.bytes;
      if (left->second > 0) return false;
      left_.erase(left);
    }
    done_[piece.segment] = true;
    return true;
  }

  // Returns the plan's items whose segments are incomplete, ascending.
  std::vector<uint32_t> UnfinishedItems() const {
    std::vector<uint32_t> items;
    for (size_t i = 0; i < done_.size(); ++i) {
      if (done_[i]) continue;
      const MoveSegment segment = plan_.segments[i];
      for (uint32_t item = 0; item < segment.items; ++item) {
        items.push_back(segment.first_item + item);
      }
    }
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    return items;
  }

 private:
  const MovePlan& plan_;
  std::vector<bool> done_;
  std::unordered_map<uint32_t, uint64_t> left_;  // bytes left of partly moved segments
};

// Adds bytes of a segment to a part's pieces; call in order.
inline void AddPiece(uint32_t segment, uint64_t bytes, std::vector<SegmentTally::Piece>* pieces) {
  if (pieces->empty() || pieces->back().segment != segment) pieces->push_back({segment, 0});
  pieces->back().bytes += bytes;
}

}  // namespace gantry::transport
