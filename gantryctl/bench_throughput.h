// `gantryctl bench`: how fast blocks move, next to what memcpy reaches in the same run over the
// same ranges. Used by one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "gantryctl/command_line.h"
#include "lib/base/result.h"

namespace gantry::gantryctl {

// What a caller can ask for at all; the error names the option.
Status CheckBenchOptions(const BenchOptions& options);

Result<nlohmann::json> MeasureThroughput(const BenchOptions& options);
std::string ThroughputText(const nlohmann::json& measured);

}  // namespace gantry::gantryctl
