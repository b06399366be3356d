// This process's resource use from the kernel, for the process_* metrics. Thread-safe.
#pragma once

#include <cstdint>

namespace gantry::metrics {

struct ProcessUsage {
  double start_time_unix_seconds = 0;
  double cpu_seconds = 0;  // user and system
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  uint64_t open_fds = 0;
  uint64_t max_fds = 0;
};

// Unreadable values stay 0.
ProcessUsage ReadProcessUsage();

}  // namespace gantry::metrics
