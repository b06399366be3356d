// Logs why transfers are refused or fail, rate-limited per error code. Suppressed lines are
// counted. Thread-safe.
#pragma once

#include <array>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/log_rate_limiter.h"

namespace gantry::engine {

class FailureLog {
 public:
  // `message` is the text of each line. `interval` is the time between two lines of one code.
  explicit FailureLog(std::string_view message, milliseconds interval = milliseconds(10'000))
      : message_(message), interval_(interval) {}

  // An empty `id` means that the transfer was never accepted.
  void Log(std::string_view workload, std::string_view operation, std::string_view id,
           const Error& error);

 private:
  const std::string_view message_;
  const milliseconds interval_;
  std::array<log::RateLimiter, kErrorCodeCount> codes_;
};

}  // namespace gantry::engine
