#include "sidecar/transport/helper_threads.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"

namespace gantry::transport {

HelperThreads::HelperThreads(int threads, int threads_max)
    : threads_max_(static_cast<size_t>(std::max(threads, threads_max))) {
  const MutexLock lock(mutex_);
  for (int i = 0; i < threads; ++i) AddThread();
}

HelperThreads::~HelperThreads() {
  std::vector<std::jthread> ending;  // joined after the lock
  const MutexLock lock(mutex_);
  stopping_ = true;
  ending.swap(threads_);
  changed_.NotifyAll();
}

void HelperThreads::AddThread() {
  auto thread = StartThread("gantry-helper", [this] { Work(); });
  if (thread) {
    threads_.push_back(*std::move(thread));
  } else {
    log::Warning("a task waits for a helper thread",
                 {{"threads", threads_.size()}, {"error", thread.error()}});
  }
}

void HelperThreads::Run(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
    if (tasks_.size() > idle_ && threads_.size() < threads_max_) AddThread();
  }
  changed_.NotifyOne();
}

void HelperThreads::Populate(const std::shared_ptr<const memory::MappedAllocation>& allocation) {
  if (allocation->for_workers_only()) return;
  if (!allocation->in_process().ClaimPopulating()) return;
  // Weak: the queue must not keep memory of a workload that is gone.
  Run([weak = std::weak_ptr(allocation)] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    if (auto populated = alive->in_process().Populate(); !populated) {
      log::Warning("page tables could not be filled", {{"error", populated.error()}});
    }
  });
}

void HelperThreads::Work() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (tasks_.empty() && !stopping_) changed_.Wait(lock);
      --idle_;
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace gantry::transport
