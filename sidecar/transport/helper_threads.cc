#include "sidecar/transport/helper_threads.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::transport {

HelperThreads::HelperThreads(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

HelperThreads::~HelperThreads() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  threads_.clear();
}

void HelperThreads::Run(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyOne();
}

void HelperThreads::Populate(const std::shared_ptr<const memory::MappedAllocation>& allocation) {
  if (allocation->kind() != wire::MemoryKind::kHost) return;
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
      while (tasks_.empty() && !stopping_) changed_.Wait(lock);
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace gantry::transport
