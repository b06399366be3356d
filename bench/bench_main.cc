// Measures transfers between two sidecars of its own against what the machine can do at all.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/bench_config.h"
#include "bench/bench_grid.h"
#include "bench/bench_latency.h"
#include "bench/bench_notify.h"
#include "bench/bench_report.h"
#include "bench/bench_throughput.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/printing.h"
#include "lib/process/standard_fds.h"

namespace gantry::bench {
namespace {

using gantryctl::kExitOk;
using gantryctl::kExitUsage;
using gantryctl::Print;

// Returns the exit code.
int PrintError(const Error& error) { return gantryctl::PrintError(error, "gantry-bench"); }

int Run(const BenchOptions& options) {
  if (const Status fine = CheckBenchOptions(options); !fine) {
    PrintError(fine.error());
    return kExitUsage;
  }
  const auto show = [&options](const std::string& row) {
    if (!options.json) Print(row);
  };
  const auto measured = options.table     ? MeasureGrid(options, show)
                        : options.latency ? MeasureLatency(options)
                        : options.notify  ? MeasureNotifications(options)
                                          : MeasureThroughput(options);
  if (!measured) return PrintError(measured.error());
  if (options.json) {
    Print(measured->dump(2) + "\n");
  } else if (!options.table) {
    Print(options.latency  ? LatencyText(*measured)
          : options.notify ? NotificationsText(*measured)
                           : ThroughputText(*measured));
  }
  return kExitOk;
}

int Main(int argc, char** argv) {
  OpenStandardFds();
  signal(SIGPIPE, SIG_DFL);  // "gantry-bench --table | head" ends
  const ParsedBenchCommandLine parsed = ParseBenchCommandLine(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  try {
    const int code = Run(parsed.options);
    if (code != kExitOk || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return code;
    return PrintError(SystemError(ErrorCode::kInternal, "writing to standard output", errno));
  } catch (const std::exception& error) {
    return PrintError(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace
}  // namespace gantry::bench

int main(int argc, char** argv) { return gantry::bench::Main(argc, argv); }
