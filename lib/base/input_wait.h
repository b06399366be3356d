// Waits for the answers of one connection, which take about equally long. A sleeping thread wakes
// up 0.1 to 0.3 ms late where idle CPUs are slow. So it sleeps until shortly before the expected
// time, then polls. Used by one thread.
#pragma once

#include "lib/base/adaptive_spin.h"
#include "lib/base/clock.h"

namespace gantry {

class InputWait {
 public:
  // Whether polling longer than a wake-up takes is worthwhile: not with few CPUs, which the
  // answering side needs.
  enum class Patience { kByProcessors, kShort, kLong };

  InputWait() : InputWait(Patience::kByProcessors) {}
  explicit InputWait(Patience patience);

  // Returns true when `fd` has input (or its end), false at the deadline.
  bool Await(int fd, TimePoint deadline);

  // When to poll, measured from the request; both 0: not at all.
  struct Window {
    nanoseconds from{0};
    nanoseconds until{0};
  };
  // `last` and `before_last` are the times of the last two answers; 0: unknown.
  static Window WindowOf(nanoseconds last, nanoseconds before_last);

 private:
  bool AwaitExpected(int fd, TimePoint start, TimePoint deadline);
  void Learn(nanoseconds taken);

  AdaptiveSpin soon_{microseconds(100)};
  AdaptiveSpin around_;  // polls around the expected time
  bool is_long_;
  nanoseconds last_{0};  // times of the last two answers; 0: unknown
  nanoseconds before_last_{0};
};

}  // namespace gantry
