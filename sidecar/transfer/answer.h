// The engine's answer to one waiting caller; given once. Thread-safe.
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

class Answer {
 public:
  // `wait` true: the answer comes at the transfer's end; false: at the driver's first look.
  explicit Answer(bool wait) : wait_(wait) {}

  bool wait() const { return wait_; }

  // Accepts a TransferStatus, the result of Fail, or a Result.
  template <typename Outcome>
  void Give(Outcome&& outcome) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!result_) result_.emplace(std::forward<Outcome>(outcome));
    is_given_.store(true, std::memory_order_release);
    // Under the lock: the waiter may drop this object as soon as it sees the result.
    given_.NotifyOne();
  }

  bool is_given() const { return is_given_.load(std::memory_order_acquire); }

  // Returns false when `deadline` passed first.
  bool WaitUntil(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!result_) {
      if (!given_.WaitUntil(lock, deadline) && !result_) return false;
    }
    return true;
  }

  // Call once. REQUIRES is_given().
  Result<TransferStatus> Take() EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return *std::move(result_);
  }

 private:
  const bool wait_;
  std::atomic<bool> is_given_{false};
  Mutex mutex_;
  Condition given_;
  std::optional<Result<TransferStatus>> result_ GUARDED_BY(mutex_);
};

}  // namespace gantry::engine
