// When a loop that ticks came round last. Takes no lock; thread-safe.
#pragma once

#include <atomic>

#include "lib/base/clock.h"

namespace gantry {

class Heartbeat {
 public:
  void Beat() { last_ = Clock::now(); }
  nanoseconds Age() const { return Clock::now() - last_.load(); }

 private:
  std::atomic<TimePoint> last_{Clock::now()};
};

}  // namespace gantry
