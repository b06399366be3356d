// From the segments of a move plan to work requests, one at a time and without allocating: what is
// contiguous on both sides in one memory region each is merged, and cut at their seams and at the
// largest message. The plan and the stretches outlive it. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/plan/move_plan.h"

namespace gantry::transport {

// The largest message of a queue pair, whatever its device tells.
inline constexpr uint64_t kWorkRequestBytesMax = uint64_t{1} << 31;

// Where bytes lie on this side, up to the seam of the memory region.
struct LocalStretch {
  uint64_t address = 0;
  uint32_t region = 0;
  uint64_t length = 0;  // 0: no memory region has them
};

// Where bytes lie on the other side, up to the seam of its chunk.
struct RemoteStretch {
  uint64_t address = 0;
  uint32_t chunk = 0;
  uint64_t length = 0;  // 0: no chunk has them
};

// The stretch that begins at a byte of one of the plan's allocations. What it answers must hold as
// long as the cutter that asks.
class Stretches {
 public:
  virtual ~Stretches() = default;
  virtual LocalStretch Local(uint32_t allocation, uint64_t offset) const = 0;
  virtual RemoteStretch Remote(uint32_t allocation, uint64_t offset) const = 0;
};

// One message. Whoever posts it knows the plan's operation, and from it the direction.
struct WorkRequest {
  uint64_t local_address = 0;
  uint64_t remote_address = 0;
  uint32_t local_region = 0;
  uint32_t remote_chunk = 0;
  uint32_t length = 0;
  // It moves bytes of the items [first_item, first_item + items), in the plan's order.
  uint32_t first_item = 0;
  uint32_t items = 0;
};

class WorkCutter {
 public:
  // `bytes_max`: the device's max_msg_sz or a smaller cap of an operator; 0: no limit of theirs.
  WorkCutter(const MovePlan& plan, const Stretches& stretches, uint64_t bytes_max);

  // False at the end of the plan. Bytes that no memory region has are an error, which stays: the
  // work requests before it cover the plan up to there.
  Result<bool> Next(WorkRequest* request);

  // Of which some bytes were in no work request so far, ascending.
  std::vector<uint32_t> ItemsLeft() const;

 private:
  // What lies under the cursor: as much of one block as is in one memory region on each side.
  struct Piece {
    LocalStretch local;
    RemoteStretch remote;
    uint64_t length = 0;
    uint32_t first_item = 0;
    uint32_t items = 0;
  };
  // The last answer about one side; bytes behind its first one are not asked for again.
  template <typename Stretch>
  struct Known {
    uint32_t allocation = 0;
    uint64_t offset = 0;
    Stretch stretch;

    // Of the byte at `at`; `ask` answers where this is another stretch.
    template <typename Ask>
    Stretch At(uint32_t of, uint64_t at, const Ask& ask);
  };

  // Moves the cursor to the first block from there on that has bytes; false: there is none.
  bool FindBlock();
  // Passes so many bytes of the block under the cursor.
  void Advance(uint64_t bytes);
  // The cursor is on a block: fills piece_. False: one side has no memory region for its next byte.
  bool Look();
  Error Unregistered() const;

  const Stretches& stretches_;
  const uint64_t bytes_max_;
  SegmentList::Iterator next_;  // the segment after segment_
  const SegmentList::Iterator end_;
  MoveSegment segment_;
  uint32_t block_ = 0;   // of segment_
  uint64_t within_ = 0;  // of this block
  Piece piece_;          // at the cursor; of length 0: not looked up yet
  Known<LocalStretch> local_;
  Known<RemoteStretch> remote_;
};

}  // namespace gantry::transport
