#include "sidecar/registry/lease_ender.h"

#include <algorithm>
#include <utility>

#include "lib/base/thread.h"

namespace gantry::registry {
namespace {

// So many slow ends may run before another workload's end has to wait.
constexpr int kEndThreads = 4;
// A lease that is made later than the last look can be this much overdue.
constexpr milliseconds kExpiryPeriod{250};

}  // namespace

LeaseEnder::LeaseEnder(WorkloadTable& workloads) : workloads_(workloads) {}

Status LeaseEnder::Start() {
  for (int i = 0; i < kEndThreads; ++i) {
    ASSIGN_OR_RETURN(std::jthread thread, StartThread("gantry-end", [this] { EndLost(); }));
    threads_.push_back(std::move(thread));
  }
  ASSIGN_OR_RETURN(std::jthread thread, StartThread("gantry-expire", [this] { ExpireLeases(); }));
  threads_.push_back(std::move(thread));
  return {};
}

LeaseEnder::~LeaseEnder() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  threads_.clear();  // joins
}

void LeaseEnder::End(std::string workload, uint64_t generation, std::string why) {
  MutexLock lock(mutex_);
  lost_.push_back({std::move(workload), generation, std::move(why)});
  changed_.NotifyAll();
}

void LeaseEnder::EndLost() {
  while (true) {
    LostLease lost;
    {
      MutexLock lock(mutex_);
      while (lost_.empty() && !stopping_) changed_.Wait(lock);
      if (lost_.empty()) return;
      lost = std::move(lost_.front());
      lost_.pop_front();
    }
    workloads_.Detach(lost.workload, lost.generation, lost.why);
  }
}

void LeaseEnder::ExpireLeases() {
  while (true) {
    const TimePoint next = workloads_.ExpireLeases(Clock::now());
    const TimePoint wake = std::min(next, Clock::now() + kExpiryPeriod);
    MutexLock lock(mutex_);
    while (!stopping_ && changed_.WaitUntil(lock, wake)) {
    }
    if (stopping_) return;
  }
}

}  // namespace gantry::registry
