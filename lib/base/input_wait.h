// Waits for the answers of one connection, each of which takes about as long as those before it: a
// thread that sleeps is woken 0.1 to 0.3 ms late where idle processors are slow, so it looks for
// input where that is soon to come, and sleeps until then. By one thread.
#pragma once

#include "lib/base/adaptive_spin.h"
#include "lib/base/clock.h"

namespace gantry {

class InputWait {
 public:
  // Whether it pays to spin for longer than a wake-up takes: not where the processors are few and
  // who answers wants them.
  enum class Patience { kByProcessors, kShort, kLong };

  InputWait() : InputWait(Patience::kByProcessors) {}
  explicit InputWait(Patience patience);

  // Until there is something to read from `fd` (or its end), which is true, or the deadline.
  bool Await(int fd, TimePoint deadline);

  // When an answer is looked for, after the request; nothing where the two are 0.
  struct Window {
    nanoseconds from{0};
    nanoseconds until{0};
  };
  // Where the last two answers took so long; 0: not known.
  static Window WindowOf(nanoseconds last, nanoseconds before_last);

 private:
  bool AwaitExpected(int fd, TimePoint start, TimePoint deadline);
  void Learn(nanoseconds taken);

  AdaptiveSpin soon_{microseconds(100)};
  AdaptiveSpin around_;  // the time at which it is expected
  bool is_long_;
  nanoseconds last_{0};  // how long the last two took; 0: not known
  nanoseconds before_last_{0};
};

}  // namespace gantry
