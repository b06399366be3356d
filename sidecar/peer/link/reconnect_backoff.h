// When a peer is connected to next: later after each failure. For one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/clock.h"
#include "lib/base/random_id.h"

namespace gantry::peer {

class ReconnectBackoff {
 public:
  ReconnectBackoff(milliseconds wait_min, milliseconds wait_max)
      : wait_min_(wait_min), wait_max_(wait_max), next_(Clock::now()) {}

  TimePoint next() const { return next_; }

  // The wait is doubled with each failure. It is between half and all of that, so that peers do not
  // come in step.
  void Postpone() {
    const int64_t doubled = wait_min_.count() << std::min(failures_++, 16);
    const int64_t most = std::min<int64_t>(doubled, wait_max_.count());
    next_ = Clock::now() +
            milliseconds(most / 2 + static_cast<int64_t>(RandomGeneration() % (most / 2 + 1)));
  }
  void Reset() {
    failures_ = 0;
    next_ = Clock::now();
  }

 private:
  const milliseconds wait_min_;
  const milliseconds wait_max_;
  TimePoint next_;
  int failures_ = 0;
};

}  // namespace gantry::peer
