// Divides this process's descriptors between those kept for others and the connections of each
// listener. Used by the main thread.
#pragma once

#include <cstddef>

#include "sidecar/app/sidecar_config.h"

namespace gantry {

struct FdBudgets {
  size_t limit = 0;      // the process's
  size_t workloads = 0;  // at most half of the limit, less 128
  size_t peers = 0;      // at most an eighth for peers' memory, and as much for ours in tickets

  // One descriptor each.
  size_t rest_connections = 0;
  size_t data_connections = 0;
  // Two descriptors each: a lease's connection also has its process's pidfd.
  size_t handoff_connections = 0;
  // Three descriptors each: two for the peer API, one for its lease or the other listener.
  size_t peer_sessions = 0;
  size_t peer_connections = 0;  // per listener; some more, so that excess peers can be told why
};

// Raises the process's limit as far as allowed, and divides it.
FdBudgets BudgetFds(const SidecarConfig& config);
// Divides this limit. Some 60 of 1024 remain for the process itself.
FdBudgets DivideFds(size_t limit, const SidecarConfig& config);

}  // namespace gantry
