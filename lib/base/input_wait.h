// Waits for the answers of one connection: looks for input where that is soon to come, and sleeps
// until then. By one thread.
#pragma once

#include "lib/base/adaptive_spin.h"
#include "lib/base/clock.h"
#include "lib/base/expected_answer.h"

namespace gantry {

class InputWait {
 public:
  using Patience = ExpectedAnswer::Patience;

  InputWait() : InputWait(Patience::kByProcessors) {}
  explicit InputWait(Patience patience) : expected_(patience) {}

  // Until there is something to read from `fd` (or its end), which is true, or the deadline.
  bool Await(int fd, TimePoint deadline);

 private:
  bool AwaitExpected(int fd, TimePoint start, TimePoint deadline);

  AdaptiveSpin soon_{microseconds(100)};
  ExpectedAnswer expected_;
};

}  // namespace gantry
