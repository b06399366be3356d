// Turns a plan's segments into work requests, one at a time and without allocating. Contiguous
// bytes within one memory region on each side are merged. They are cut at region seams and at the
// largest message. The plan and the stretches outlive it. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/plan/move_plan.h"

namespace gantry::transport {

// Limit of a queue pair's message, whatever the device reports.
inline constexpr uint64_t kWorkRequestBytesMax = uint64_t{1} << 31;

// Local address of some bytes, up to the end of their memory region.
struct LocalStretch {
  uint64_t address = 0;
  uint32_t region = 0;
  uint64_t length = 0;  // 0: no memory region contains them
};

// Remote address of some bytes, up to the end of their chunk.
struct RemoteStretch {
  uint64_t address = 0;
  uint32_t chunk = 0;
  uint64_t length = 0;  // 0: no chunk contains them
};

// Looks up the stretch that begins at a byte of a plan's allocation. Results must stay valid as
// long as the cutter.
class Stretches {
 public:
  virtual ~Stretches() = default;
  virtual LocalStretch Local(uint32_t allocation, uint64_t offset) const = 0;
  virtual RemoteStretch Remote(uint32_t allocation, uint64_t offset) const = 0;
};

// One message. Its direction is the plan's operation.
struct WorkRequest {
  uint64_t local_address = 0;
  uint64_t remote_address = 0;
  uint32_t local_region = 0;
  uint32_t remote_chunk = 0;
  uint32_t length = 0;
  // Contains bytes of items [first_item, first_item + items), in the plan's order.
  uint32_t first_item = 0;
  uint32_t items = 0;
};

class WorkCutter {
 public:
  // `bytes_max` is the device's max_msg_sz or an operator's smaller limit; 0: no limit of theirs.
  WorkCutter(const MovePlan& plan, const Stretches& stretches, uint64_t bytes_max);

  // Fills in the next work request; false at the end of the plan. Fails at bytes that no memory
  // region contains, and on every later call. Earlier work requests cover the plan up to there.
  Result<bool> Next(WorkRequest* request);

  // Returns the items with bytes that are in no work request yet, ascending.
  std::vector<uint32_t> ItemsLeft() const;

 private:
  // The bytes at the cursor: the part of one block that lies in one memory region on each side.
  struct Piece {
    LocalStretch local;
    RemoteStretch remote;
    uint64_t length = 0;
    uint32_t first_item = 0;
    uint32_t items = 0;
  };
  // A cached lookup for one side. It serves later bytes of the same stretch.
  template <typename Stretch>
  struct Known {
    uint32_t allocation = 0;
    uint64_t offset = 0;
    Stretch stretch;

    // Returns the stretch at byte `at`; calls `lookup` if it is another stretch.
    template <typename Lookup>
    Stretch At(uint32_t of, uint64_t at, const Lookup& lookup);
  };

  // Moves the cursor to the next non-empty block; false: there is none.
  bool FindBlock();
  // Moves the cursor by `bytes` within its block.
  void Advance(uint64_t bytes);
  // Fills in piece_ for the block at the cursor. False: one side has no memory region there.
  bool FillPiece();
  Error Unregistered() const;

  const Stretches& stretches_;
  const uint64_t bytes_max_;
  SegmentList::Iterator next_;  // the segment after segment_
  const SegmentList::Iterator end_;
  MoveSegment segment_;
  uint32_t block_ = 0;   // index within segment_
  uint64_t within_ = 0;  // offset within the block
  Piece piece_;          // at the cursor; length 0: not looked up yet
  Known<LocalStretch> local_;
  Known<RemoteStretch> remote_;
};

}  // namespace gantry::transport
