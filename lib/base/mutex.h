// A mutex, its scoped lock and a condition variable that clang's thread-safety analysis
// understands.
// Thread-safe.
#pragma once

#include <condition_variable>
#include <mutex>

#include "lib/base/clock.h"
#include "lib/base/thread_annotations.h"

namespace gantry {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : lock_(mutex.native()) {}
  ~MutexLock() RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For Condition::Wait only.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

class Condition {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }
  // Wait and WaitUntil may wake up spuriously: check the condition in a loop.
  void Wait(MutexLock& lock) { condition_.wait(lock.native()); }
  // Returns false when `deadline` passed first.
  bool WaitUntil(MutexLock& lock, TimePoint deadline) {
    return condition_.wait_until(lock.native(), deadline) == std::cv_status::no_timeout;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace gantry
