// A bounded spin before a sleep. A wake-up takes 15 microseconds, and 100 to 300 where an idle
// processor of a virtual machine has to be woken. A spin spares it what comes sooner. Thread-safe.
#pragma once

#include <sched.h>

#include <algorithm>

#include "lib/base/clock.h"

namespace gantry {

class BoundedSpin {
 public:
  explicit constexpr BoundedSpin(nanoseconds limit) : limit_(limit) {}

  // Returns true as soon as ready() does, false after the limit or at the deadline. Calls ready()
  // at least once.
  template <typename Ready>
  bool Until(const Ready& ready, TimePoint deadline = TimePoint::max()) const {
    const TimePoint end = std::min<TimePoint>(Clock::now() + limit_, deadline);
    while (!ready()) {
      if (Clock::now() >= end) return false;
      ::sched_yield();  // a thread that has work and no processor goes first
    }
    return true;
  }

 private:
  nanoseconds limit_;
};

}  // namespace gantry
