// `gantry-bench`: how fast blocks move, next to what memcpy reaches in the same run over the
// same ranges. Used by one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/bench_options.h"
#include "lib/base/result.h"

namespace gantry::bench {

// What a caller can ask for at all; the error names the option.
Status CheckBenchOptions(const BenchOptions& options);

Result<nlohmann::json> MeasureThroughput(const BenchOptions& options);

}  // namespace gantry::bench
