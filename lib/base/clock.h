// The monotonic clock for deadlines; changes of the wall clock do not affect it. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace gantry {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

inline double SecondsBetween(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace gantry
