// The operator's command line: shows a running sidecar, examines the machine, measures transfers.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/bench_grid.h"
#include "bench/bench_latency.h"
#include "bench/bench_notify.h"
#include "bench/bench_report.h"
#include "bench/bench_throughput.h"
#include "gantryctl/doctor.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/gantryctl_config.h"
#include "gantryctl/printing.h"
#include "gantryctl/sidecar_commands.h"
#include "lib/process/standard_fds.h"

namespace gantry::gantryctl {
namespace {

int RunBench(const CommandLine& line) {
  if (const Status fine = CheckBenchOptions(line.bench); !fine) {
    PrintError(fine.error());
    return kExitUsage;
  }
  const auto show = [&line](const std::string& row) {
    if (!line.json) Print(row);
  };
  const auto measured = line.bench.table     ? MeasureGrid(line.bench, show)
                        : line.bench.latency ? MeasureLatency(line.bench)
                        : line.bench.notify  ? MeasureNotifications(line.bench)
                                             : MeasureThroughput(line.bench);
  if (!measured) return PrintError(measured.error());
  if (line.json) {
    Print(measured->dump(2) + "\n");
  } else if (!line.bench.table) {
    Print(line.bench.latency  ? LatencyText(*measured)
          : line.bench.notify ? NotificationsText(*measured)
                              : ThroughputText(*measured));
  }
  return kExitOk;
}

int Run(const CommandLine& line) {
  switch (line.command) {
    case Command::kStatus:
      return RunStatus(line);
    case Command::kBuffers:
      return RunBuffers(line);
    case Command::kPeers:
      return RunPeers(line);
    case Command::kWorkloads:
      return RunWorkloads(line);
    case Command::kTransfers:
      return RunTransfers(line);
    case Command::kDoctor:
      return RunDoctor(line);
    case Command::kBench:
      return RunBench(line);
  }
  return kExitUsage;
}

int Main(int argc, char** argv) {
  OpenStandardFds();
  signal(SIGPIPE, SIG_DFL);  // "gantryctl transfers --watch | head" ends
  const ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (parsed.exit_code) return *parsed.exit_code;
  try {
    const int code = Run(parsed.command_line);
    if (code != kExitOk || (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)) return code;
    return PrintError(SystemError(ErrorCode::kInternal, "writing to standard output", errno));
  } catch (const std::exception& error) {
    return PrintError(Error(ErrorCode::kInternal, error.what()));
  }
}

}  // namespace
}  // namespace gantry::gantryctl

int main(int argc, char** argv) { return gantry::gantryctl::Main(argc, argv); }
