// Cuts a plan into parts that pass through staging memory. A side is staged where its bytes lie on
// GPUs that RDMA devices cannot reach. The plan outlives it. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "sidecar/plan/block_cursor.h"
#include "sidecar/plan/move_plan.h"
#include "sidecar/plan/segment_tally.h"

namespace gantry::transport {

struct BouncePart {
  // Contiguous on both sides.
  struct Range {
    uint32_t local_allocation = 0;
    uint32_t remote_allocation = 0;
    uint64_t local_offset = 0;
    uint64_t remote_offset = 0;
    uint64_t length = 0;
    bool local_staged = false;
    bool remote_staged = false;
  };
  std::vector<Range> ranges;
  std::vector<SegmentTally::Piece> pieces;
  uint64_t bytes = 0;
  uint64_t local_staged = 0;  // part of `bytes`
  uint64_t remote_staged = 0;
};

class BounceCutter {
 public:
  explicit BounceCutter(const MovePlan& plan);

  bool needs_remote_stage() const { return needs_remote_; }

  bool at_end() const { return cursor_.at_end(); }
  // Returns the next part, at most `bytes_max` bytes. REQUIRES !at_end().
  BouncePart Cut(uint64_t bytes_max);

 private:
  // Bytes [begin, end) of an allocation.
  struct Extent {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  void FindOnNics(const MovePlan& plan);
  // Checks bytes, not allocations: buffers are registered, so an allocation may be partly
  // registered.
  bool IsStagedHere(const BlockCursor::Stretch& stretch) const;
  void Add(const BlockCursor::Stretch& stretch, BouncePart* part) const;

  BlockCursor cursor_;
  // Parallel to the plan's local allocations: whether it is GPU memory, and its registered ranges,
  // sorted and disjoint.
  std::vector<bool> on_gpu_;
  std::vector<std::vector<Extent>> nic_extents_;
  std::vector<bool> remote_staged_;  // parallel to the remote allocations
  bool needs_remote_ = false;
};

}  // namespace gantry::transport
