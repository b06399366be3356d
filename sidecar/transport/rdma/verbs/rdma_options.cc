#include "sidecar/transport/rdma/verbs/rdma_options.h"

#include <algorithm>
#include <cmath>

namespace gantry::transport {
namespace {

constexpr double kTimeoutUnitMs = 4.096e-3;
constexpr double kSlack = 4;
constexpr double kRetryMinMs = 100;
constexpr double kRetryMaxMs = 10'000;

}  // namespace

milliseconds RdmaOptions::RetryTime() const {
  if (timeout == 0) return milliseconds(static_cast<int64_t>(kRetryMaxMs));
  const double asked = std::ldexp(kTimeoutUnitMs, timeout) * (retries + 1);
  return milliseconds(static_cast<int64_t>(std::clamp(kSlack * asked, kRetryMinMs, kRetryMaxMs)));
}

}  // namespace gantry::transport
