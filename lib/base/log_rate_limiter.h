// Rate limit for a repeated log message. The first line passes, then one per interval with the
// number of suppressed lines. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::log {

class RateLimiter {
 public:
  // Returns the number of lines suppressed since the last one; nothing: suppress this one, too.
  // `interval` is the time between two lines.
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
