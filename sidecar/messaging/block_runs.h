// A set of block ids, stored as runs of consecutive ids. Immutable; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace gantry::engine {

class BlockRuns {
 public:
  explicit BlockRuns(std::vector<uint64_t> blocks) {
    std::sort(blocks.begin(), blocks.end());
    for (const uint64_t block : blocks) {
      if (!runs_.empty() && block <= runs_.back().last + 1) {
        runs_.back().last = std::max(runs_.back().last, block);
      } else {
        runs_.push_back({block, block});
      }
    }
    runs_.shrink_to_fit();
  }

  bool Has(uint64_t block) const {
    auto after = std::upper_bound(runs_.begin(), runs_.end(), block,
                                  [](uint64_t value, const Run& run) { return value < run.first; });
    return after != runs_.begin() && block <= std::prev(after)->last;
  }
  size_t size() const { return runs_.size(); }

 private:
  struct Run {
    uint64_t first;
    uint64_t last;
  };
  std::vector<Run> runs_;
};

}  // namespace gantry::engine
