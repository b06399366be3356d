// Reads gantry-bench's command line and environment: the only place that does. Used by one thread.
#pragma once

#include <optional>

#include "bench/bench_options.h"

namespace gantry::bench {

struct ParsedBenchCommandLine {
  BenchOptions options;
  std::optional<int> exit_code;  // set when there is nothing left to do: help, version, mistakes
};

// Prints help, the version and mistakes itself.
ParsedBenchCommandLine ParseBenchCommandLine(int argc, char** argv);

}  // namespace gantry::bench
