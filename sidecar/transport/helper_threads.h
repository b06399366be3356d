// A few threads for blocking work: asking peers for tickets, connecting, filling page tables. The
// engine's thread and I/O threads never block on it. Thread-safe.
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
  // Starts `threads` threads. While all are busy, Run adds threads up to `threads_max`; they stay.
  // If a thread cannot be created, tasks wait, and the next task tries again.
  explicit HelperThreads(int threads, int threads_max = 0);
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;
  // Waits for running tasks and drops the others.
  ~HelperThreads();

  void Run(std::function<void()> task) EXCLUDES(mutex_);
  // Fills the page tables of host memory in the background, once per allocation.
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
