// The half of TransferLoop that ends transfers, announces those that succeeded, and forgets them.
#include <algorithm>
#include <string>
#include <utility>

#include "sidecar/transfer/transfer_loop.h"
#include "sidecar/transfer/transfer_sample.h"

namespace gantry::engine {
namespace {

// Failed items in the statuses that are kept, all together.
constexpr size_t kFinishedItemsMax = 4'000'000;

// Where no answer came, the notification may have been delivered all the same.
Error NotTold(Error why) {
  const bool unsure = why.code == ErrorCode::kPeerLost || why.code == ErrorCode::kDeadlineExceeded;
  why.message = (unsure ? "the bytes have arrived, and nothing is known of the notification: "
                        : "the bytes have arrived, and the notification was not delivered: ") +
                why.message;
  if (unsure) {
    why.hint =
        "send the message by itself when the peer is up; a receiver may then get it a second time";
  }
  return why;
}

}  // namespace

void TransferLoop::Finish(Transfer* transfer) {
  const TimePoint now = Clock::now();
  if (transfer->timer) timers_.erase({*transfer->timer, transfer->token});
  transfer->timer.reset();
  bytes_inflight_.fetch_sub(transfer->admitted.plan->bytes, std::memory_order_relaxed);
  transfer->chunks_retried = transfer->operation->progress().chunks_retried;
  std::optional<StaleRetry::Attempt> retry = RetryOf(*transfer, now);
  const transport::Operation& operation = *transfer->operation;
  const auto counted =
      operation.error_is_counted() ? std::optional(operation.error()->code) : std::nullopt;
  transfer->End(now, options_.failed_items_max);
  if (transfer->begun) {
    CountFailure(transfer->admitted.status, counted);
    TrackBusy(*transfer, -1, now);
  }
  const bool succeeded = transfer->admitted.status.state == TransferState::kSucceeded;
  transfer->admitted.reading.End(succeeded);
  if (succeeded && transfer->admitted.notify) return Announce(transfer);
  if (retry) return Retry(transfer, *std::move(retry));
  NoteFailure(transfer->admitted.status);
  Settle(transfer);
}

// Each attempt, whether it is retried or not: a path that fails under every transfer is seen.
void TransferLoop::CountFailure(const TransferStatus& status, std::optional<ErrorCode> counted) {
  if (!status.error || status.error->code == counted) return;
  metrics_.PathError(static_cast<metrics::Path>(status.path), status.error->code);
}

// Cancelled ones were meant to end.
void TransferLoop::NoteFailure(const TransferStatus& status) {
  if (!status.error || status.state == TransferState::kCancelled) return;
  failures_.Tell(status.workload, wire::NameOf(status.operation), status.id, *status.error);
}

void TransferLoop::Announce(Transfer* transfer) {
  Admitted& admitted = transfer->admitted;
  const uint64_t token = transfer->token;
  transfer->announcing = true;
  admitted.status.state = TransferState::kRunning;
  SetTimer(transfer, std::max(admitted.deadline, Clock::now()) + options_.quiesce_max);
  wire::Notification notification;
  notification.from_workload = admitted.status.workload;
  notification.from_workload_generation = admitted.workload_generation;
  // No id of a caller has a slash; the id of a transfer may be used again.
  notification.id = "transfer/" + admitted.status.id + "/" + std::to_string(token);
  notification.content = *std::exchange(admitted.notify, std::nullopt);
  const auto done = [this, token](const Status& outcome, std::optional<microseconds>) {
    Post([this, token, outcome] { Announced(token, outcome); });
  };
  if (notifications_ == nullptr) {
    return done(Fail(ErrorCode::kPathUnavailable, "this sidecar carries no notifications"),
                std::nullopt);
  }
  notifications_->SendOfTransfer(admitted.status.peer, std::move(notification), admitted.deadline,
                                 done);
}

void TransferLoop::Announced(uint64_t token, const Status& outcome) {
  const auto found = transfers_.find(token);
  if (found == transfers_.end() || !found->second->announcing) return;
  Transfer* transfer = found->second.get();
  if (transfer->timer) timers_.erase({*transfer->timer, token});
  transfer->timer.reset();
  transfer->announcing = false;
  TransferStatus& status = transfer->admitted.status;
  status.state = TransferState::kSucceeded;
  status.notified = outcome.has_value();
  if (!outcome) status.notify_error = NotTold(outcome.error());
  status.timings.total_us = static_cast<uint64_t>(
      std::chrono::duration_cast<microseconds>(Clock::now() - transfer->admitted.begun).count());
  Settle(transfer);
}

void TransferLoop::Settle(Transfer* transfer) {
  const TimePoint now = Clock::now();
  active_.fetch_sub(1, std::memory_order_relaxed);
  transfer->admitted.request.reset();
  const TransferStatus& status = transfer->admitted.status;
  Account(*transfer, now);  // before the answers: who has one finds it in metrics and events
  for (const auto& answer : transfer->waiting) answer->Give(status);
  transfer->waiting.clear();
  if (status.failed_items != nullptr) finished_items_ += status.failed_items->size();
  finished_.emplace_back(now, transfer->token);
}

void TransferLoop::Account(const Transfer& transfer, TimePoint ended) {
  metrics_.TransferEnded(SampleOf(transfer, ended));
  const TransferStatus& status = transfer.admitted.status;
  // What a peer asked for its workload hears of at the peer.
  if (!status.requested_by.empty()) return;
  events_.Append({0, EventType::kTransfer, status.workload, status.id, "",
                  std::make_shared<const TransferStatus>(status),
                  transfer.admitted.workload_generation});
}

void TransferLoop::TrackBusy(const Transfer& transfer, int change, TimePoint now) {
  const TransferStatus& status = transfer.admitted.status;
  BusyTime& busy =
      busy_[status.operation == wire::Operation::kRead ? 0 : 1][static_cast<size_t>(status.path)];
  // Told at each change, and not when the path is idle: under load it never is.
  if (busy.running > 0) {
    metrics_.Busy(static_cast<metrics::Operation>(status.operation),
                  static_cast<metrics::Path>(status.path), SecondsBetween(busy.since, now));
  }
  busy.since = now;
  busy.running += change;
}

void TransferLoop::ForgetOldTransfers(TimePoint now) {
  while (!finished_.empty() &&
         (finished_.size() > options_.finished_kept_max || finished_items_ > kFinishedItemsMax ||
          finished_.front().first + options_.finished_ttl < now)) {
    const Transfer& oldest = *transfers_.at(finished_.front().second);
    const TransferStatus& status = oldest.admitted.status;
    if (status.failed_items != nullptr) finished_items_ -= status.failed_items->size();
    Forget(oldest);
    finished_.pop_front();
  }
}

void TransferLoop::Forget(const Transfer& transfer) {
  ForgetId(transfer);
  transfers_.erase(transfer.token);
}

void TransferLoop::ForgetId(const Transfer& transfer) {
  const TransferStatus& status = transfer.admitted.status;
  const auto found = tokens_.find(Key(status.workload, status.id));
  if (found != tokens_.end() && found->second == transfer.token) tokens_.erase(found);
}

}  // namespace gantry::engine
