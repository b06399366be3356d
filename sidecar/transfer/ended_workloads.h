// The lives of workloads that ended, so that a transfer which was admitted meanwhile is refused.
// Owned by the engine's driver.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace gantry::engine {

class EndedWorkloads {
 public:
  // The oldest one is forgotten when there are too many.
  void Add(uint64_t generation) {
    if (!generations_.insert(generation).second) return;
    order_.push_back(generation);
    if (order_.size() <= kKept) return;
    generations_.erase(order_.front());
    order_.pop_front();
  }

  bool Contains(uint64_t generation) const { return generations_.contains(generation); }

 private:
  // Long enough for an admission that was under way when its workload ended.
  static constexpr size_t kKept = 4096;

  absl::flat_hash_set<uint64_t> generations_;
  std::deque<uint64_t> order_;  // the oldest first
};

}  // namespace gantry::engine
