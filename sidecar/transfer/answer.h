// What one caller waits for from the engine: given once. Thread-safe.
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
  // `wait`: for the end of the transfer; otherwise the first look is the answer.
  explicit Answer(bool wait) : wait_(wait) {}

  bool wait() const { return wait_; }

  // A TransferStatus, what Fail returns, or a Result.
  template <typename Outcome>
  void Give(Outcome&& outcome) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!result_) result_.emplace(std::forward<Outcome>(outcome));
    is_given_.store(true, std::memory_order_release);
    // Under the lock: the waiter may drop this object as soon as it sees the result.
    given_.NotifyOne();
  }

  bool is_given() const { return is_given_.load(std::memory_order_acquire); }

  // False when `deadline` passed first.
  bool WaitUntil(TimePoint deadline) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (!result_) {
      if (!given_.WaitUntil(lock, deadline) && !result_) return false;
    }
    return true;
  }

  // Once. REQUIRES is_given().
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
