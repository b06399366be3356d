// The commands that ask a running sidecar. Each prints its answer and returns the exit code.
// Used by one thread.
#pragma once

#include "gantryctl/command_line.h"

namespace gantry::gantryctl {

int RunStatus(const CommandLine& line);
int RunBuffers(const CommandLine& line);
int RunPeers(const CommandLine& line);
int RunWorkloads(const CommandLine& line);
int RunTransfers(const CommandLine& line);

}  // namespace gantry::gantryctl
