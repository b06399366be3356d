// `gantry-bench --latency`: 4 KiB transfers, each one request on a connection that stays open,
// one after the other; at once, and with a pause in between. Used by one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_options.h"
#include "lib/base/result.h"

namespace gantry::bench {

Result<nlohmann::json> MeasureLatency(const BenchOptions& options);
std::string LatencyText(const nlohmann::json& measured);

}  // namespace gantry::bench
