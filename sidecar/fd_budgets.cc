#include "sidecar/fd_budgets.h"

#include <sys/resource.h>

#include <algorithm>

namespace gantry {
namespace {

size_t RaiseFdLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2048;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

}  // namespace

FdBudgets BudgetFds(const SidecarConfig& config) {
  const size_t limit = RaiseFdLimit();
  const size_t asked = config.fds_max == 0 ? limit : config.fds_max;
  const size_t for_peers = config.peer_fds_max == 0 ? limit : config.peer_fds_max;
  return {std::min(asked, limit / 2), std::min(for_peers, limit / 8)};
}

}  // namespace gantry
