// This side's clock as sent to peers: nanoseconds of the monotonic clock. Its start has no meaning
// for others. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::transport {

inline uint64_t MonotonicNanoseconds(TimePoint time = Clock::now()) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

}  // namespace gantry::transport
