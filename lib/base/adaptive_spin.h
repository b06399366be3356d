// A bounded spin before a sleep. Spinning pays when the answer comes sooner than a sleep and a
// wake-up take (15 microseconds where an idle processor has to be woken in a virtual machine): the
// budget is the limit while it does, and shrinks to nothing while it does not. Used by one thread
// at a time.
#pragma once

#include <sched.h>

#include "lib/base/clock.h"

namespace gantry {

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

}  // namespace gantry
