// This side's clock as it crosses the wire: nanoseconds of a clock that is never set, from a start
// that means nothing to others. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::transport {

inline uint64_t MonotonicNanoseconds(TimePoint time = Clock::now()) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

}  // namespace gantry::transport
