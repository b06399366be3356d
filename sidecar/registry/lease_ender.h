// Ends workloads whose lease is lost or expired, on its own threads. An end waits for running
// transfers, and the thread that detects the loss must not. Thread-safe.
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
  ~LeaseEnder();  // finishes all requested ends first

  Status Start();  // call once; without it nothing ends
  // Returns at once. Ignored if the workload has another generation by then.
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
  std::deque<LostLease> lost_ GUARDED_BY(mutex_);  // at most one per lease
  std::vector<std::jthread> threads_;
};

}  // namespace gantry::registry
