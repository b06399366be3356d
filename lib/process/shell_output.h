// What a shell command prints. Stateless; thread-safe.
#pragma once

#include <string>

namespace gantry {

// Its standard output, whatever its exit code; empty when it cannot be run.
std::string OutputOf(const std::string& command);

}  // namespace gantry
