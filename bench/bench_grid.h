// `gantry-bench --table`: the grid of block sizes by batch sizes with the columns of nixlbench,
// so that the two can be laid side by side. Used by one thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_options.h"
#include "lib/base/result.h"

namespace gantry::bench {

// `show` is given the heading and then each row as it is done, for people.
Result<nlohmann::json> MeasureGrid(const BenchOptions& options,
                                   const std::function<void(const std::string&)>& show);

}  // namespace gantry::bench
