// Keeps what happens in a loop from filling the log: a line at once, and then now and again one
// that says how many there were meanwhile. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::log {

class Gate {
 public:
  // How many lines were left out since the last one; nothing: this one is to be left out, too.
  // `interval`: between two lines.
  std::optional<uint64_t> Pass(milliseconds interval = milliseconds(10'000)) {
    const TimePoint now = Clock::now();
    const MutexLock lock(mutex_);
    if (last_ && now - *last_ < interval) {
      ++left_out_;
      return std::nullopt;
    }
    last_ = now;
    return std::exchange(left_out_, 0);
  }

 private:
  Mutex mutex_;
  std::optional<TimePoint> last_ GUARDED_BY(mutex_);
  uint64_t left_out_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::log
