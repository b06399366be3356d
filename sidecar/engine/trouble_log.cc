#include "sidecar/engine/trouble_log.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::engine {

void TroubleLog::Tell(std::string_view workload, std::string_view operation, std::string_view id,
                      const Error& error) {
  const TimePoint now = Clock::now();
  uint64_t untold = 0;
  {
    MutexLock lock(mutex_);
    OfCode& code = codes_[static_cast<size_t>(error.code)];
    if (code.told && now - *code.told < interval_) {
      ++code.untold;
      return;
    }
    code.told = now;
    untold = std::exchange(code.untold, 0);
  }
  log::Warning(message_, {{"workload", workload},
                          {"op", operation},
                          {"id", id},
                          {"error", error},
                          {"more_since_the_last_line", untold}});
}

}  // namespace gantry::engine
