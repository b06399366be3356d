// Sleeping on a word in memory that processes share, and a bounded spin before it. FutexWait and
// FutexWake are thread-safe; AdaptiveSpin is used by one thread at a time.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::worker {

// Sleeps while `word` is `expected`, until a wake, a signal or the deadline; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, TimePoint deadline);
void FutexWake(std::atomic<uint32_t>& word, int threads);

// Spinning pays when the answer comes sooner than a sleep and a wake-up take. The budget grows up
// to the limit while it does, and shrinks to nothing while it does not.
class AdaptiveSpin {
 public:
  explicit AdaptiveSpin(nanoseconds limit) : limit_(limit), budget_(limit) {}

  // True as soon as ready() is; false when the budget is spent.
  template <typename Ready>
  bool Until(const Ready& ready) {
    const TimePoint start = Clock::now();
    while (!ready()) {
      if (Clock::now() - start < budget_) {
        ::sched_yield();  // whoever has work and no core goes first
        continue;
      }
      budget_ = budget_ < kSmallest ? nanoseconds(0) : budget_ / 2;
      return false;
    }
    budget_ = limit_;
    return true;
  }

  // Tells how long the sleep after a spin in vain took.
  void Slept(nanoseconds duration) {
    if (duration < limit_) budget_ = limit_;
  }

 private:
  static constexpr nanoseconds kSmallest{2000};
  const nanoseconds limit_;
  nanoseconds budget_;
};

}  // namespace gantry::worker
