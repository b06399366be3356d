// Exit statuses of gantryctl and gantry-bench and their meaning; --help, docs/gantryctl.md and
// docs/gantry_bench.md say the same. Thread-safe.
#pragma once

#include "lib/base/error.h"

namespace gantry::gantryctl {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // the operation failed, or bytes did not arrive as they should
  kExitUsage = 2,          // the command line is wrong
  kExitUnreachable = 3,    // no sidecar answers at the socket
  kExitUnhealthy = 4,      // it answered, and something is not as it should be
  kExitInterrupted = 130,  // gantry-bench alone
};

inline ExitCode ExitCodeOf(const Error& error) {
  return error.code == ErrorCode::kPeerUnavailable ? kExitUnreachable : kExitFailed;
}

}  // namespace gantry::gantryctl
