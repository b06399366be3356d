// A bounded spin before a sleep. Spinning pays when the answer comes sooner than a sleep and a
// wake-up take (15 microseconds where an idle processor has to be woken in a virtual machine): the
// budget is the limit while it does, and shrinks to nothing while it does not. How long a sleep
// took says little, for it holds its own wake-up: a spin is tried again now and then. By one
// thread.
#pragma once

#include <sched.h>

#include <algorithm>

#include "lib/base/clock.h"

namespace gantry {

class AdaptiveSpin {
 public:
  explicit AdaptiveSpin(nanoseconds limit) : limit_(limit), budget_(limit) {}

  // True as soon as ready() is; false when the budget is spent, or at the deadline.
  template <typename Ready>
  bool Until(const Ready& ready, TimePoint deadline = TimePoint::max()) {
    const TimePoint start = Clock::now();
    const TimePoint end = std::min<TimePoint>(start + budget_, deadline);
    while (!ready()) {
      if (Clock::now() < end) {
        ::sched_yield();  // whoever has work and no core goes first
        continue;
      }
      if (deadline <= start) return false;  // which says nothing
      if (budget_ > kSmallest) {
        budget_ /= 2;
      } else {
        budget_ = ++without_ % kTryAgain == 0 ? limit_ : nanoseconds(0);
      }
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
  static constexpr unsigned kTryAgain = 16;  // of that many waits without a spin
  nanoseconds limit_;                        // const, but that it moves with its owner
  nanoseconds budget_;
  unsigned without_ = 0;
};

}  // namespace gantry
