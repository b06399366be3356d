// Processor time of the calling thread. Thread-safe.
#pragma once

#include <ctime>

namespace gantry::testing {

inline double ThreadProcessorSeconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace gantry::testing
