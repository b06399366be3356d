// Cuts a plan into parts, each of which goes through staging memory at once: of the sides whose
// bytes lie on GPUs that RDMA devices do not reach. The plan outlives it. Used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/transport/block_cursor.h"
#include "sidecar/transport/move_plan.h"
#include "sidecar/transport/segment_tally.h"

namespace gantry::transport {

struct BouncePart {
  // Contiguous on both sides.
  struct Range {
    uint32_t local_allocation = 0;
    uint32_t remote_allocation = 0;
    uint64_t local_offset = 0;
    uint64_t remote_offset = 0;
    uint64_t length = 0;
  };
  std::vector<Range> ranges;
  std::vector<SegmentTally::Piece> pieces;
  uint64_t bytes = 0;
  uint64_t local_staged = 0;  // of `bytes`
  uint64_t remote_staged = 0;
};

class BounceCutter {
 public:
  explicit BounceCutter(const MovePlan& plan);

  bool local_is_staged(uint32_t allocation) const { return local_staged_[allocation]; }
  bool remote_is_staged(uint32_t allocation) const { return remote_staged_[allocation]; }
  bool needs_local_stage() const { return needs_local_; }
  bool needs_remote_stage() const { return needs_remote_; }

  bool at_end() const { return cursor_.at_end(); }
  // The next part, of so many bytes at most. REQUIRES !at_end().
  BouncePart Cut(uint64_t bytes_max);

 private:
  void Add(const BlockCursor::Stretch& stretch, BouncePart* part) const;

  BlockCursor cursor_;
  std::vector<bool> local_staged_;   // parallel to the plan's local allocations
  std::vector<bool> remote_staged_;  // and remote ones
  bool needs_local_ = false;
  bool needs_remote_ = false;
};

}  // namespace gantry::transport
