// The segments of a plan, by index. Blocks that many pairs of buffers share are stored once, as
// runs of block ids. So 32 768 descriptors of 64 pairs take the memory of 512. Thread-safe once
// built.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace gantry::transport {

// `count` blocks of `length` bytes; block i starts i * stride after the first. Covers the request's
// items (ranges, or pairs of block ids) [first_item, first_item + items).
struct MoveSegment {
  uint32_t local_allocation = 0;  // index into MovePlan::local
  uint32_t remote_allocation = 0;
  uint64_t local_offset = 0;  // within the allocation, in bytes
  uint64_t remote_offset = 0;
  uint64_t length = 0;
  uint64_t local_stride = 0;
  uint64_t remote_stride = 0;
  uint32_t count = 1;
  uint32_t first_item = 0;  // in the plan's order of items
  uint32_t items = 1;
  // True: the blocks are the same items of several pairs. False: each block is one of `items`, or
  // all of them.
  bool by_rows = false;

  uint64_t bytes() const { return length * count; }
};

// Consecutive units on both sides. A unit is a block. If one side's blocks are larger, it is an
// equal part of such a block: block id * parts + part.
struct BlockRun {
  uint32_t local_unit = 0;
  uint32_t remote_unit = 0;
  uint32_t count = 0;
  uint32_t first_item = 0;
};

// A pair of buffers whose units the runs name, each in one piece of one allocation. With `rows` > 1
// it stands for several pairs in the same two allocations, at constant steps.
struct BlockPair {
  uint32_t local_allocation = 0;
  uint32_t remote_allocation = 0;
  uint64_t local_base = 0;  // place of unit 0 within the allocation, in bytes
  uint64_t remote_base = 0;
  uint64_t unit_bytes = 0;
  uint64_t local_stride = 0;  // from one block to the next
  uint64_t remote_stride = 0;
  uint32_t local_parts = 1;  // units per block; they are adjacent
  uint32_t remote_parts = 1;
  // Number of pairs. If above 1, a run is dense and is one segment of `rows` blocks.
  uint32_t rows = 1;
  uint64_t local_row_step = 0;
  uint64_t remote_row_step = 0;

  uint64_t local_offset(uint64_t unit) const {
    return local_base + OffsetOf(unit, local_parts, local_stride, unit_bytes);
  }
  uint64_t remote_offset(uint64_t unit) const {
    return remote_base + OffsetOf(unit, remote_parts, remote_stride, unit_bytes);
  }
  // The distance between units of a run. A run leaves a block of several parts only where the next
  // block continues it.
  uint64_t local_step() const { return local_parts == 1 ? local_stride : unit_bytes; }
  uint64_t remote_step() const { return remote_parts == 1 ? remote_stride : unit_bytes; }
  // True when the units of a run are adjacent on both sides.
  bool is_dense() const { return local_step() == unit_bytes && remote_step() == unit_bytes; }

 private:
  static uint64_t OffsetOf(uint64_t unit, uint32_t parts, uint64_t stride, uint64_t unit_bytes) {
    return parts == 1 ? unit * stride : unit / parts * stride + unit % parts * unit_bytes;
  }
};

// Number of copies that the segments take: single blocks, and strided copies of rows.
struct CopyCounts {
  uint64_t blocks = 0;   // without those in rows
  uint64_t of_rows = 0;  // copies of rows
  uint64_t rows = 0;     // in these copies
};

class SegmentList {
 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const CopyCounts& copies() const { return copies_; }
  MoveSegment operator[](size_t index) const {
    if (index < explicit_.size()) return explicit_[index];
    index -= explicit_.size();
    size_t i = 0;
    while (index >= sets_[i].size()) index -= sets_[i++].size();
    const Set& set = sets_[i];
    return SegmentOf(set.pairs[index / set.runs.size()], set.runs[index % set.runs.size()]);
  }

  void push_back(const MoveSegment& segment) {
    explicit_.push_back(segment);
    copies_.blocks += segment.count;
    ++size_;
  }
  // Reserves room for more single segments. Repeated small calls do not copy the segments each
  // time.
  void ReserveMore(size_t segments) {
    const size_t needed = explicit_.size() + segments;
    if (needed <= explicit_.capacity()) return;
    explicit_.reserve(std::max(needed, 2 * explicit_.capacity()));
  }
  size_t capacity() const { return explicit_.capacity(); }  // for single segments
  // Adds one segment per run and pair, after all earlier segments and runs. Sets are few.
  void AddRuns(std::vector<BlockPair> pairs, std::vector<BlockRun> runs) {
    std::vector<size_t> longer;
    uint64_t units = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      units += runs[i].count;
      if (runs[i].count > 1) longer.push_back(i);
    }
    for (const BlockPair& pair : pairs) {
      if (pair.rows == 1) {
        copies_.blocks += pair.is_dense() ? runs.size() : units;
      } else {
        copies_.of_rows += runs.size();
        copies_.rows += runs.size() * pair.rows;
      }
    }
    sets_.push_back({std::move(pairs), std::move(runs), std::move(longer)});
    size_ += sets_.back().size();
  }

  // Consecutive runs of one pair.
  struct PairRuns {
    const BlockPair* pair = nullptr;
    std::span<const BlockRun> runs;
  };

  // Walks forward without a search per step.
  class Iterator {
   public:
    Iterator(const SegmentList* list, size_t index) : list_(list), index_(index) {
      if (index >= list->size()) return;
      if (index < list->explicit_.size()) return;
      size_t left = index - list->explicit_.size();
      while (left >= list->sets_[set_].size()) left -= list->sets_[set_++].size();
      pair_ = left / list->sets_[set_].runs.size();
      run_ = left % list->sets_[set_].runs.size();
    }
    MoveSegment operator*() const {
      if (index_ < list_->explicit_.size()) return list_->explicit_[index_];
      const Set& set = list_->sets_[set_];
      return SegmentOf(set.pairs[pair_], set.runs[run_]);
    }
    Iterator& operator++() {
      if (index_++ < list_->explicit_.size()) return *this;
      if (++run_ < list_->sets_[set_].runs.size()) return *this;
      run_ = 0;
      if (++pair_ < list_->sets_[set_].pairs.size()) return *this;
      pair_ = 0;
      ++set_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

    // Returns the segments from here on that are one block of one pair each. Empty if the current
    // one has more blocks.
    PairRuns SingleBlocks() const {
      if (index_ < list_->explicit_.size() || index_ >= list_->size_) return {};
      const Set& set = list_->sets_[set_];
      if (set.pairs[pair_].rows > 1) return {};
      const auto longer = std::lower_bound(set.longer.begin(), set.longer.end(), run_);
      const size_t end = longer == set.longer.end() ? set.runs.size() : *longer;
      if (end == run_) return {};
      return {&set.pairs[pair_], std::span(set.runs).subspan(run_, end - run_)};
    }
    // Skips `blocks` single blocks, at least one.
    void Skip(size_t blocks) {
      index_ += blocks - 1;
      run_ += blocks - 1;
      ++*this;
    }

   private:
    const SegmentList* list_;
    size_t index_;
    size_t set_ = 0;  // these three: the place of index_ beyond the single segments
    size_t pair_ = 0;
    size_t run_ = 0;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }
  Iterator From(size_t index) const { return {this, index}; }

  static MoveSegment SegmentOf(const BlockPair& pair, const BlockRun& run) {
    MoveSegment segment;
    segment.local_allocation = pair.local_allocation;
    segment.remote_allocation = pair.remote_allocation;
    segment.local_offset = pair.local_offset(run.local_unit);
    segment.remote_offset = pair.remote_offset(run.remote_unit);
    if (pair.rows > 1) {
      segment.length = pair.unit_bytes * run.count;
      segment.local_stride = pair.local_row_step;
      segment.remote_stride = pair.remote_row_step;
      segment.count = pair.rows;
      segment.by_rows = true;
    } else if (run.count == 1 || pair.is_dense()) {
      segment.length = pair.unit_bytes * run.count;
    } else {
      segment.length = pair.unit_bytes;
      segment.local_stride = pair.local_step();
      segment.remote_stride = pair.remote_step();
      segment.count = run.count;
    }
    segment.first_item = run.first_item;
    segment.items = run.count;
    return segment;
  }

 private:
  struct Set {
    std::vector<BlockPair> pairs;
    std::vector<BlockRun> runs;
    std::vector<size_t> longer;  // indices of runs with more than one block, ascending
    size_t size() const { return pairs.size() * runs.size(); }
  };

  std::vector<MoveSegment> explicit_;
  std::vector<Set> sets_;  // none is empty
  CopyCounts copies_;
  size_t size_ = 0;
};

}  // namespace gantry::transport
