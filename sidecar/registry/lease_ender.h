// Ends the workloads whose lease is lost or has run out, on threads of its own: an end waits for
// running transfers, and whoever notices the loss must not. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

class LeaseEnder {
 public:
  explicit LeaseEnder(WorkloadTable& workloads);
  LeaseEnder(const LeaseEnder&) = delete;
  LeaseEnder& operator=(const LeaseEnder&) = delete;
  ~LeaseEnder();  // after all ends that were asked for

  Status Start();  // once; without it nothing ends
  // Returns at once. Does nothing when the workload is of another generation by then.
  void End(std::string workload, uint64_t generation, std::string why) EXCLUDES(mutex_);

 private:
  struct LostLease {
    std::string workload;
    uint64_t generation = 0;
    std::string why;
  };

  void EndLost() EXCLUDES(mutex_);
  void ExpireLeases() EXCLUDES(mutex_);

  WorkloadTable& workloads_;

  Mutex mutex_;
  Condition changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::deque<LostLease> lost_ GUARDED_BY(mutex_);  // at most one for each lease that there was
  std::vector<std::jthread> threads_;
};

}  // namespace gantry::registry
