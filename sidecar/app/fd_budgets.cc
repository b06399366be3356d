#include "sidecar/app/fd_budgets.h"

#include <sys/resource.h>

#include <algorithm>

namespace gantry {
namespace {

constexpr size_t kHandoffMax = 1024;
constexpr size_t kSessionsMax = 1024;
constexpr size_t kDataMax = 4096;
constexpr size_t kConnectionsMin = 8;
constexpr size_t kSpareConnections = 4;
// Of the workloads' half, for the process and its listeners where the limit is low.
constexpr size_t kKeptOfHalf = 128;

size_t RaiseFdLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 2048;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

}  // namespace

FdBudgets DivideFds(size_t limit, const SidecarConfig& config) {
  const size_t asked = config.fds_max == 0 ? limit : config.fds_max;
  const size_t for_peers = config.peer_fds_max == 0 ? limit : config.peer_fds_max;
  // 128ths of the limit.
  const auto part = [limit](size_t parts, size_t most) {
    return std::min(std::max(limit * parts / 128, kConnectionsMin), most);
  };
  FdBudgets budgets;
  budgets.limit = limit;
  budgets.workloads = std::min(asked, limit / 2 - std::min(limit / 8, kKeptOfHalf));
  budgets.peers = std::min(for_peers, limit / 8);
  budgets.rest_connections = part(10, config.connections_max);
  budgets.data_connections = part(6, kDataMax);
  budgets.handoff_connections = part(3, kHandoffMax);
  budgets.peer_sessions = part(2, kSessionsMax);
  budgets.peer_connections = budgets.peer_sessions + kSpareConnections;
  return budgets;
}

FdBudgets BudgetFds(const SidecarConfig& config) { return DivideFds(RaiseFdLimit(), config); }

}  // namespace gantry
