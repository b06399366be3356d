// Times notifications between two sidecars: until the receiver reads one, and until its sender
// knows that. Used by one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_options.h"
#include "lib/base/result.h"

namespace gantry::bench {

Result<nlohmann::json> MeasureNotifications(const BenchOptions& options);
std::string NotificationsText(const nlohmann::json& measured);

}  // namespace gantry::bench
