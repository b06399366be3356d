// The operator's command line: shows a running sidecar, and examines the machine.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <exception>

#include "gantryctl/doctor.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/gantryctl_config.h"
#include "gantryctl/plugin_copy.h"
#include "gantryctl/printing.h"
#include "gantryctl/sidecar_commands.h"
#include "lib/process/standard_fds.h"

namespace gantry::gantryctl {
namespace {

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
    case Command::kNixlPlugin:
      return RunNixlPlugin(line);
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
