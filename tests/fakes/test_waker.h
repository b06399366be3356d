// Who waits for something to do in a test, and who wakes it: a wake-up that comes first is kept for
// the next wait. Thread-safe.
#pragma once

#include "lib/base/mutex.h"

namespace gantry::testing {

class TestWaker {
 public:
  void Wake() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    woken_ = true;
    condition_.NotifyAll();
  }
  void WaitUntil(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!woken_ && condition_.WaitUntil(lock, deadline)) {
    }
    woken_ = false;
  }
  void Wait(milliseconds time = milliseconds(20)) { WaitUntil(Clock::now() + time); }

 private:
  Mutex mutex_;
  Condition condition_;
  bool woken_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::testing
