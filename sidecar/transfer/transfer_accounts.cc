#include "sidecar/transfer/transfer_accounts.h"

#include <algorithm>

#include "sidecar/transfer/path_selector.h"
#include "sidecar/transfer/transfer_sample.h"

namespace gantry::engine {

// Between nodes a sidecar with RDMA devices is expected to use them, without staging. One on which
// they do not work has nothing to fall back from, and a caller who wants another path gets it.
void TransferAccounts::PathChosen(const Admitted& admitted) const {
  const TransferStatus& status = admitted.status;
  metrics_.PathSelected(status.path);
  if (admitted.blocked_by_tcp) {
    metrics_.NodeFallback(*admitted.blocked_by_tcp, status.path);
  }
  if (status.path != wire::Path::kTcp && status.path != wire::Path::kBounce) return;
  for (const auto& transport : transports_) {
    if (transport->path() != wire::Path::kRdma || !transport->Probe()) continue;
    const auto report = std::find_if(status.paths.begin(), status.paths.end(),
                                     [](const auto& one) { return one.path == wire::Path::kRdma; });
    if (report == status.paths.end() || report->available || report->reason == kNotRequired)
      continue;
    metrics_.RdmaFallback(status.path,
                          admitted.rdma_obstacle.value_or(metrics::PathObstacle::kPeer));
  }
}

void TransferAccounts::Moving(const Transfer& transfer, int change, TimePoint now) {
  const TransferStatus& status = transfer.admitted.status;
  BusyTime& busy =
      busy_[status.operation == wire::Operation::kRead ? 0 : 1][static_cast<size_t>(status.path)];
  // Told at each change, and not when the path is idle: under load it never is.
  if (busy.running > 0) {
    metrics_.Busy(status.operation, status.path, SecondsBetween(busy.since, now));
  }
  busy.since = now;
  busy.running += change;
}

// Each attempt, whether it is retried or not: a path that fails under every transfer is seen.
void TransferAccounts::AttemptFailed(const TransferStatus& status,
                                     std::optional<ErrorCode> counted) const {
  if (!status.error || status.error->code == counted) return;
  metrics_.PathError(status.path, status.error->code);
}

void TransferAccounts::Failed(const TransferStatus& status) {
  if (!status.error || status.state == TransferState::kCancelled) return;
  failures_.Log(status.workload, wire::NameOf(status.operation), status.id, *status.error);
}

void TransferAccounts::Ended(const Transfer& transfer, TimePoint ended) const {
  metrics_.TransferEnded(SampleOf(transfer, ended));
  const TransferStatus& status = transfer.admitted.status;
  // The peer that asked for it tells its own workload.
  if (!status.requested_by.empty()) return;
  events_.Append({0, EventType::kTransfer, status.workload, status.id, "",
                  std::make_shared<const TransferStatus>(status),
                  transfer.admitted.workload_generation});
}

}  // namespace gantry::engine
