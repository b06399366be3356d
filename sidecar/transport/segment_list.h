// The segments of a plan, by index. Blocks that many pairs of buffers share are kept once, as runs
// of block ids: 32 768 descriptors of 64 pairs take the memory of 512. Thread-safe once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gantry::transport {

// `count` blocks of `length` bytes; block i lies i * stride behind the first. Covers the items
// (ranges, or pairs of block ids) [first_item, first_item + items) of the request.
struct MoveSegment {
  uint32_t local_allocation = 0;  // index into MovePlan::local
  uint32_t remote_allocation = 0;
  uint64_t local_offset = 0;  // bytes within the allocation
  uint64_t remote_offset = 0;
  uint64_t length = 0;
  uint64_t local_stride = 0;
  uint64_t remote_stride = 0;
  uint32_t count = 1;
  uint32_t first_item = 0;  // in the plan's order of items
  uint32_t items = 1;

  uint64_t bytes() const { return length * count; }
};

// Consecutive block ids on both sides.
struct BlockRun {
  uint32_t local_block = 0;
  uint32_t remote_block = 0;
  uint32_t count = 0;
  uint32_t first_item = 0;
};

// A pair of buffers whose blocks the runs name, each in one piece of one allocation.
struct BlockPair {
  uint32_t local_allocation = 0;
  uint32_t remote_allocation = 0;
  uint64_t local_base = 0;  // of block 0: bytes within the allocation
  uint64_t remote_base = 0;
  uint64_t block_bytes = 0;
  uint64_t local_stride = 0;  // from one block to the next
  uint64_t remote_stride = 0;
};

class SegmentList {
 public:
  size_t size() const { return explicit_.size() + pairs_.size() * runs_.size(); }
  bool empty() const { return size() == 0; }
  MoveSegment operator[](size_t index) const {
    return pairs_.empty() ? explicit_[index]
                          : SegmentOf(pairs_[index / runs_.size()], runs_[index % runs_.size()]);
  }

  // Either single segments or one set of runs, each of which is one segment in every pair.
  void push_back(const MoveSegment& segment) { explicit_.push_back(segment); }
  void reserve(size_t segments) { explicit_.reserve(segments); }
  void SetRuns(std::vector<BlockPair> pairs, std::vector<BlockRun> runs) {
    pairs_ = std::move(pairs);
    runs_ = std::move(runs);
  }

  class Iterator {
   public:
    Iterator(const SegmentList* list, size_t index) : list_(list), index_(index) {}
    MoveSegment operator*() const { return (*list_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const SegmentList* list_;
    size_t index_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  static MoveSegment SegmentOf(const BlockPair& pair, const BlockRun& run) {
    MoveSegment segment;
    segment.local_allocation = pair.local_allocation;
    segment.remote_allocation = pair.remote_allocation;
    segment.local_offset = pair.local_base + run.local_block * pair.local_stride;
    segment.remote_offset = pair.remote_base + run.remote_block * pair.remote_stride;
    const bool dense = run.count == 1 || (pair.local_stride == pair.block_bytes &&
                                          pair.remote_stride == pair.block_bytes);
    if (dense) {
      segment.length = pair.block_bytes * run.count;
    } else {
      segment.length = pair.block_bytes;
      segment.local_stride = pair.local_stride;
      segment.remote_stride = pair.remote_stride;
      segment.count = run.count;
    }
    segment.first_item = run.first_item;
    segment.items = run.count;
    return segment;
  }

  std::vector<MoveSegment> explicit_;
  std::vector<BlockPair> pairs_;
  std::vector<BlockRun> runs_;
};

}  // namespace gantry::transport
