// The part of TransferLoop that tries transfers again whose descriptions were stale: once each, and
// only when nothing of the first attempt moves any more.
#include <algorithm>
#include <utility>

#include "sidecar/transfer/transfer_loop.h"

namespace gantry::engine {

// REQUIRES operation finished.
std::optional<StaleRetry::Attempt> TransferLoop::RetryOf(const Transfer& transfer,
                                                         TimePoint now) const {
  const Admitted& admitted = transfer.admitted;
  // One whose fence was not reached has not begun: nobody said that its bytes are there.
  if (admitted.request == nullptr || transfer.was_retried || !transfer.begun || retry_ == nullptr ||
      closing_ || now >= admitted.deadline) {
    return std::nullopt;
  }
  const transport::Progress& progress = transfer.operation->progress();
  if (progress.chunks == progress.chunks_total) return std::nullopt;
  const std::optional<Error>& why =
      transfer.stop_reason ? transfer.stop_reason : transfer.operation->error();
  const bool failed = !transfer.stop_reason || transfer.stop_outcome == TransferState::kFailed;
  if (!failed || !why || !StaleRetry::Helps(*why, *admitted.request)) return std::nullopt;
  StaleRetry::Attempt attempt;
  attempt.request = admitted.request;
  attempt.peer = admitted.status.peer;
  attempt.refusal = *why;
  attempt.deadline = admitted.deadline;
  attempt.path = admitted.status.path;
  attempt.used = StaleRetry::UsedBy(admitted);
  for (const auto& remote : admitted.remotes) {
    attempt.stale.push_back(remote->reference.generation);
  }
  return attempt;
}

// Of a transfer that ended: it holds nothing while it is described and admitted again.
void TransferLoop::Retry(Transfer* transfer, StaleRetry::Attempt attempt) {
  TransferStatus& status = transfer->admitted.status;
  transfer->was_retried = true;
  transfer->refused = std::make_unique<TransferStatus>(status);
  status.state = TransferState::kRunning;
  status.error.reset();
  status.failed_items = nullptr;
  status.failed_items_truncated = false;
  status.bytes_moved = status.chunks_moved = 0;
  transfer->begun.reset();
  transfer->stop_started.reset();
  transfer->stop_reason.reset();
  transfer->aborted = false;
  SetTimer(transfer, transfer->admitted.deadline);
  retry_->Post(std::move(attempt), [this, token = transfer->token](Result<Admitted> again) {
    auto shared = std::make_shared<Result<Admitted>>(std::move(again));
    Post([this, token, shared] { Retried(token, shared.get()); });
  });
}

void TransferLoop::Retried(uint64_t token, Result<Admitted>* again) {
  const auto found = transfers_.find(token);
  if (found == transfers_.end() || found->second->refused == nullptr) return;
  Transfer* transfer = found->second.get();
  Admitted& admitted = transfer->admitted;
  const bool usable = *again && (*again)->workload_generation == admitted.workload_generation;
  if (!usable || closing_) return EndRetry(transfer);
  if (const auto& why = transfer->refused->error) metrics_.TransferRetried(why->code);
  transfer->refused.reset();
  Admitted& fresh = **again;
  admitted.uses = std::move(fresh.uses);
  admitted.remotes = std::move(fresh.remotes);
  admitted.reservation = std::move(fresh.reservation);
  admitted.plan = std::move(fresh.plan);
  admitted.transport = fresh.transport;
  admitted.delegation = std::move(fresh.delegation);
  admitted.reading = std::move(fresh.reading);
  TransferStatus& status = admitted.status;
  status.retries = 1;
  status.executed_by_peer = fresh.status.executed_by_peer;
  const bool is_another = std::exchange(status.path, fresh.status.path) != fresh.status.path;
  status.paths = std::move(fresh.status.paths);
  admitted.against_rdma = fresh.against_rdma;
  admitted.kept_off_by_tcp = fresh.kept_off_by_tcp;
  if (is_another && admitted.transport != nullptr) CountPath(admitted);
  status.bytes = fresh.status.bytes;
  status.chunks = fresh.status.chunks;
  status.descriptors_in = fresh.status.descriptors_in;
  status.descriptors_out = fresh.status.descriptors_out;
  bytes_inflight_.fetch_add(admitted.plan->bytes, std::memory_order_relaxed);
  Begin(transfer);
}

// As the first attempt ended, or for this reason.
void TransferLoop::EndRetry(Transfer* transfer, TransferState outcome, std::optional<Error> why) {
  if (transfer->timer) timers_.erase({*transfer->timer, transfer->token});
  transfer->timer.reset();
  TransferStatus& status = transfer->admitted.status;
  status = std::move(*transfer->refused);
  transfer->refused.reset();
  if (why) {
    status.state = outcome;
    status.error = std::move(why);
  }
  Settle(transfer);
}

}  // namespace gantry::engine
