// The engine's reply to one waiting caller; set once. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/messaging/transfer_status.h"

namespace gantry::engine {

class Reply {
 public:
  // `wait` true: the reply comes at the transfer's end; false: at the driver's first look.
  explicit Reply(bool wait) : wait_(wait) {}

  bool wait() const { return wait_; }

  // Accepts a TransferStatus, the result of Fail, or a Result.
  template <typename Outcome>
  void Set(Outcome&& outcome) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!result_) result_.emplace(std::forward<Outcome>(outcome));
    is_set_.store(true, std::memory_order_release);
    // Under the lock: the waiter may drop this object as soon as it sees the result.
    changed_.NotifyOne();
  }

  bool is_set() const { return is_set_.load(std::memory_order_acquire); }

  // Returns false when `deadline` passed first.
  bool WaitUntil(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!result_) {
      if (!changed_.WaitUntil(lock, deadline) && !result_) return false;
    }
    return true;
  }

  // Call once. REQUIRES is_set().
  Result<TransferStatus> Take() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return *std::move(result_);
  }

 private:
  const bool wait_;
  std::atomic<bool> is_set_{false};
  Mutex mutex_;
  Condition changed_;
  std::optional<Result<TransferStatus>> result_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
