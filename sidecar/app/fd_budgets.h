// How the descriptors that this process may have are divided: what it keeps for others, and how
// many connections each listener takes. Used by the main thread.
#pragma once

#include <cstddef>

#include "sidecar/app/sidecar_config.h"

namespace gantry {

struct FdBudgets {
  size_t limit = 0;      // of the process
  size_t workloads = 0;  // half of the limit less 128 at most
  size_t peers = 0;      // an eighth at most for theirs, and another for ours in tickets

  // Each of the next takes one descriptor.
  size_t rest_connections = 0;
  size_t data_connections = 0;
  // A lease's connection takes another for its process.
  size_t handoff_connections = 0;
  // A peer takes three: two of the peer API, and one for its lease or for another door.
  size_t peer_sessions = 0;
  size_t peer_connections = 0;  // of each door: some more, so that one too many is told why
};

// Raises the process's limit as far as it goes, and divides it.
FdBudgets BudgetFds(const SidecarConfig& config);
// With this limit. Some 60 of 1024 are left for the process itself.
FdBudgets DivideFds(size_t limit, const SidecarConfig& config);

}  // namespace gantry
