// The times of transfers with each agent, for estimates of the next. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class TransferCosts {
 public:
  struct Estimate {
    microseconds duration{0};
    microseconds margin{0};
  };

  void Observe(const std::string& agent, uint64_t bytes, microseconds took);
  // From assumptions where nothing was observed yet; the margin says so.
  Estimate Of(const std::string& agent, uint64_t bytes) const;

 private:
  struct Cost {
    double start_us = 100;       // of a transfer of few bytes
    double bytes_per_us = 1000;  // of one of many
    bool observed = false;
  };

  mutable Mutex mutex_;
  std::map<std::string, Cost> by_agent_ GUARDED_BY(mutex_);
};

}  // namespace gantry::nixl
