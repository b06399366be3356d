// Reads gantryctl's command line and environment: the only place that does. Used by one thread.
#pragma once

#include <optional>

#include "gantryctl/command_line.h"

namespace gantry::gantryctl {

struct ParsedCommandLine {
  CommandLine command_line;
  std::optional<int> exit_code;  // set when there is nothing left to do: help, version, mistakes
};

// Prints help, the version and mistakes itself.
ParsedCommandLine ParseCommandLine(int argc, char** argv);

}  // namespace gantry::gantryctl
