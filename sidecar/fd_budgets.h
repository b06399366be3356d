// How many descriptors this process may keep for others. Used by the main thread.
#pragma once

#include <cstddef>

#include "sidecar/sidecar_config.h"

namespace gantry {

struct FdBudgets {
  size_t workloads = 0;  // half of the limit at most
  size_t peers = 0;      // an eighth at most for theirs, and another for ours in tickets
};

// Raises the process's limit as far as it goes, and divides it.
FdBudgets BudgetFds(const SidecarConfig& config);

}  // namespace gantry
