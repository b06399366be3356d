// Tells the log why transfers are refused or fail: of each code at once, and then now and again
// with how many there were meanwhile, so that a caller in a loop does not fill it. Thread-safe.
#pragma once

#include <array>
#include <string_view>

#include "lib/base/error.h"
#include "lib/base/log_gate.h"

namespace gantry::engine {

class TroubleLog {
 public:
  // `message`: of each line. `interval`: between two lines of one code.
  explicit TroubleLog(std::string_view message, milliseconds interval = milliseconds(10'000))
      : message_(message), interval_(interval) {}

  // `operation` and `id` as callers know them; no id: the transfer was never accepted.
  void Tell(std::string_view workload, std::string_view operation, std::string_view id,
            const Error& error);

 private:
  const std::string_view message_;
  const milliseconds interval_;
  std::array<log::Gate, kErrorCodeCount> codes_;
};

}  // namespace gantry::engine
