// A few threads for what blocks: asking peers for tickets, connecting, filling page tables. So that
// neither the engine's nor an io thread ever waits for it. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::transport {

class HelperThreads {
 public:
  // More are started while all of those are busy, up to `threads_max`, and stay. Where there can be
  // no more, tasks wait; what is missing is tried again with each task.
  explicit HelperThreads(int threads, int threads_max = 0);
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;
  // Ends the tasks that run, drops those that wait.
  ~HelperThreads();

  void Run(std::function<void()> task) EXCLUDES(mutex_);
  // In the background, the first time that the allocation is seen here.
  void Populate(const std::shared_ptr<const memory::MappedAllocation>& allocation);

 private:
  void Work() EXCLUDES(mutex_);
  void AddThread() REQUIRES(mutex_);

  const size_t threads_max_;
  Mutex mutex_;
  Condition changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  size_t idle_ GUARDED_BY(mutex_) = 0;
  std::vector<std::jthread> threads_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
