// Wakes a thread that waits for work or for a time. A signal is kept while no thread waits, so none
// is lost. Thread-safe, for one waiting thread.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::peer {

class WakeSignal {
 public:
  void Wake() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    woken_ = true;
    changed_.NotifyAll();
  }

  // Returns at the deadline, or when Wake was called since the last return.
  void WaitUntil(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!woken_ && changed_.WaitUntil(lock, deadline)) {
    }
    woken_ = false;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  bool woken_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
