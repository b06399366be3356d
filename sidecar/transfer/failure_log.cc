#include "sidecar/transfer/failure_log.h"

#include "lib/base/log.h"

namespace gantry::engine {

void FailureLog::Log(std::string_view workload, std::string_view operation, std::string_view id,
                     const Error& error) {
  const auto untold = codes_[static_cast<size_t>(error.code)].Pass(interval_);
  if (!untold) return;
  log::Warning(message_, {{"workload", workload},
                          {"op", operation},
                          {"id", id},
                          {"error", error},
                          {"more_since_the_last_line", *untold}});
}

}  // namespace gantry::engine
