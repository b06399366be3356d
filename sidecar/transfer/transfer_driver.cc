#include "sidecar/transfer/transfer_driver.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transfer/unmoved_operation.h"
#include "sidecar/transfer/unstarted_operation.h"

namespace gantry::engine {
namespace {

// Its lists of blocks are empty: no transport is asked. REQUIRES that it has not ended.
bool MovesNothing(const Transfer& transfer) { return transfer.admitted.plan->descriptors_in == 0; }

bool IsStoppable(const Transfer& transfer) {
  return transfer.operation != nullptr || transfer.is_refreshing();
}

}  // namespace

transport::PollOutcome TransferDriver::Poll() {
  // Fences go first: a transport posts in its poll the copies of a transfer that a fence begins.
  const bool begun = PollFences();
  transport::PollOutcome outcome = PollTransports();
  const bool carried = outcome.progressed;
  outcome.progressed |= begun;
  const TimePoint now = Clock::now();
  outcome.progressed |= FireTimers(now);
  table_.ForgetOld(now);
  if (carried) last_carried_ = now;
  return outcome;
}

transport::PollOutcome TransferDriver::PollTransports() {
  transport::PollOutcome outcome;
  for (const auto& transport : transports_) outcome.Add(transport->Poll(&finished_now_));
  outcome.progressed |= delegated_.Poll(&finished_now_, &accepted_now_);
  for (auto& accepted : accepted_now_) TakePath(std::move(accepted));
  accepted_now_.clear();
  for (const uint64_t token : finished_now_) {
    if (Transfer* const transfer = table_.Find(token); transfer != nullptr) HandleReady(transfer);
  }
  finished_now_.clear();
  return outcome;
}

// The peer that executes it says which path it took.
void TransferDriver::TakePath(DelegatedTransfers::Accepted accepted) {
  Transfer* const transfer = table_.Find(accepted.token);
  if (transfer == nullptr || transfer->operation == nullptr) return;
  const TimePoint now = Clock::now();
  accounts_.Moving(*transfer, -1, now);
  transfer->admitted.status.path = accepted.path;
  transfer->admitted.status.paths = std::move(accepted.paths);
  accounts_.Moving(*transfer, 1, now);
}

bool TransferDriver::PollFences() {
  if (fences_.next() == TimePoint::max()) return false;
  fences_.Poll(Clock::now(), &reached_now_);
  const bool any = !reached_now_.empty();
  for (const uint64_t token : reached_now_) {
    Transfer* const transfer = table_.Find(token);
    Begin(transfer);
    if (MovesNothing(*transfer)) HandleReady(transfer);
  }
  reached_now_.clear();
  return any;
}

bool TransferDriver::FireTimers(TimePoint now) {
  bool fired = false;
  for (; Transfer* const transfer = table_.TakeDue(now); fired = true) {
    if (transfer->is_notifying) {
      NotificationDelivered(transfer->token,
                            Fail(ErrorCode::kDeadlineExceeded, "nothing is known of its delivery"));
    } else if (transfer->is_refreshing()) {
      EndRetry(transfer);
    } else if (!transfer->stop_started) {
      StopOne(transfer, TransferState::kExpired,
              transfer->waits_for_fence()
                  ? NotReached(*transfer->admitted.fence)
                  : Error(ErrorCode::kDeadlineExceeded, "the transfer did not end by its deadline",
                          "deadline_ms states it; progress says how far it came"));
    } else if (!transfer->aborted) {
      log::Warning("a transfer does not become quiet, ending its copy workers",
                   {{"transfer", transfer->admitted.status.id}});
      transfer->aborted = true;
      transfer->operation->Abort();
    }
  }
  return fired;
}

Status TransferDriver::CheckRoom(const Admitted& admitted) const {
  if (ended_.Contains(admitted.workload_generation)) {
    return Fail(ErrorCode::kCancelled, "workload '" + admitted.status.workload +
                                           "' ended while the transfer was admitted");
  }
  if (closing_) return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
  if (table_.active() >= options_.transfers_max) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(options_.transfers_max) + " transfers are not finished yet",
                "wait for completions before submitting more");
  }
  return {};
}

void TransferDriver::Accept(Admitted* admitted, const std::shared_ptr<Reply>& reply) {
  const Key key(admitted->status.workload, admitted->status.id);
  // A workload's id lasts as long as its process: the next process begins anew.
  const Transfer* known = table_.Find(key);
  if (known != nullptr && known->admitted.workload_generation == admitted->workload_generation) {
    return Query(key, reply, admitted->fingerprint);
  }
  if (auto room = CheckRoom(*admitted); !room) return reply->Set(Fail(room.error()));
  const TimePoint now = Clock::now();
  Transfer* const transfer = table_.Add(std::move(*admitted), now);
  const auto& fence = transfer->admitted.fence;
  const bool waits = fence && fence->Read() < fence->value;
  if (waits) {
    transfer->operation = std::make_unique<UnstartedOperation>(transfer->admitted.plan);
    fences_.Add(transfer->token, &*fence, now);
  } else {
    Begin(transfer);
  }
  accounts_.PathChosen(transfer->admitted);
  table_.SetTimer(transfer, transfer->admitted.deadline);
  Query(key, reply);
  if (!waits && MovesNothing(*transfer)) HandleReady(transfer);
}

// REQUIRES that it waits for nothing more.
void TransferDriver::Begin(Transfer* transfer) {
  Admitted& admitted = transfer->admitted;
  transfer->begun = Clock::now();
  accounts_.Moving(*transfer, 1, *transfer->begun);
  const int priority = admitted.status.priority;
  if (MovesNothing(*transfer)) {
    transfer->operation = std::make_unique<UnmovedOperation>(*admitted.plan, *transfer->begun);
    return;
  }
  transfer->operation = admitted.delegation == nullptr
                            ? admitted.transport->Start(admitted.plan, priority, transfer->token)
                            : delegated_.Start(admitted.delegation, admitted.plan,
                                               admitted.deadline, priority, transfer->token);
}

void TransferDriver::Query(const Key& key, const std::shared_ptr<Reply>& reply,
                           std::optional<uint64_t> fingerprint) {
  Transfer* const transfer = table_.Find(key);
  if (transfer == nullptr) {
    return reply->Set(Fail(ErrorCode::kNotFound,
                           "workload '" + key.first + "' has no transfer '" + key.second + "'",
                           "finished transfers are kept for a while only; events say the rest"));
  }
  if (fingerprint && transfer->admitted.fingerprint != *fingerprint) {
    return reply->Set(Fail(ErrorCode::kConflict,
                           "transfer '" + key.second + "' exists with another content",
                           "use a new id for a new transfer", "/id"));
  }
  if (reply->wait() && !transfer->is_terminal()) {
    transfer->waiting.push_back(reply);
  } else {
    reply->Set(transfer->Snapshot(Clock::now()));
  }
}

void TransferDriver::Cancel(const Key& key, const std::shared_ptr<Reply>& reply) {
  Transfer* const transfer = table_.Find(key);
  if (transfer != nullptr && IsStoppable(*transfer)) {
    StopOne(transfer, TransferState::kCancelled,
            Error(ErrorCode::kCancelled, "the transfer was cancelled by its caller"));
  }
  Query(key, reply);
}

void TransferDriver::HandleReady(Transfer* transfer) {
  if (transfer->operation == nullptr) return;
  if (transfer->operation->finished()) return Finish(transfer);
  // It failed; what is still in flight gets as much time as after a cancel.
  if (transfer->operation->error()) {
    StopOne(transfer, TransferState::kFailed, *transfer->operation->error());
  }
}

void TransferDriver::Stop(const Match& match, TransferState outcome, const Error& why) {
  for (const auto& [token, transfer] : table_.all()) {
    if (IsStoppable(*transfer) && match(*transfer)) StopOne(transfer.get(), outcome, why);
  }
}

void TransferDriver::StopOne(Transfer* transfer, TransferState outcome, Error why) {
  if (transfer->stop_started) return;
  if (transfer->is_refreshing()) return EndRetry(transfer, outcome, std::move(why));
  const TimePoint now = Clock::now();
  transfer->stop_started = now;
  transfer->stop_outcome = outcome;
  transfer->stop_reason = std::move(why);
  table_.SetTimer(transfer, now + options_.quiesce_max);
  transfer->operation->Stop();
  if (!transfer->waits_for_fence()) return;
  fences_.Remove(transfer->token);
  Finish(transfer);
}

void TransferDriver::Close() {
  closing_ = true;
  Stop([](const Transfer&) { return true; }, TransferState::kCancelled,
       Error(ErrorCode::kShuttingDown, "the sidecar is stopping"));
}

void TransferDriver::Finish(Transfer* transfer) {
  const TimePoint now = Clock::now();
  table_.ClearTimer(transfer);
  transfer->chunks_retried = transfer->operation->progress().chunks_retried;
  std::optional<StaleRetry::Attempt> attempt;
  if (!closing_ && now < transfer->admitted.deadline) {
    attempt = StaleRetry::AttemptAfter(*transfer);
  }
  const transport::Operation& operation = *transfer->operation;
  const auto counted =
      operation.progress().error_is_counted ? std::optional(operation.error()->code) : std::nullopt;
  transfer->End(now, options_.failed_items_max);
  const TransferStatus& status = transfer->admitted.status;
  if (transfer->begun) {
    accounts_.AttemptFailed(status, counted);
    accounts_.Moving(*transfer, -1, now);
  }
  const bool succeeded = status.state == TransferState::kSucceeded;
  transfer->admitted.reading.End(succeeded);
  if (succeeded && transfer->admitted.notify) return DeliverNotification(transfer);
  if (attempt) return Retry(transfer, *std::move(attempt));
  accounts_.Failed(status);
  Complete(transfer);
}

// The transfer has ended: it holds nothing while it is described and admitted again.
void TransferDriver::Retry(Transfer* transfer, StaleRetry::Attempt attempt) {
  transfer->BeginRetry();
  table_.SetTimer(transfer, transfer->admitted.deadline);
  retry_.Post(std::move(attempt), [post = post_, token = transfer->token](Result<Admitted> again) {
    auto shared = std::make_shared<Result<Admitted>>(std::move(again));
    post([token, shared](TransferDriver& driver) { driver.Retried(token, shared.get()); });
  });
}

void TransferDriver::Retried(uint64_t token, Result<Admitted>* again) {
  Transfer* const transfer = table_.Find(token);
  if (transfer == nullptr || !transfer->is_refreshing()) return;
  const Admitted& admitted = transfer->admitted;
  const bool usable = *again && (*again)->workload_generation == admitted.workload_generation;
  if (!usable || closing_) return EndRetry(transfer);
  if (const auto& why = transfer->refused->error) accounts_.Retried(why->code);
  const wire::Path before = admitted.status.path;
  transfer->TakeSecondAttempt(std::move(**again));
  if (before != admitted.status.path && admitted.transport != nullptr) {
    accounts_.PathChosen(admitted);
  }
  Begin(transfer);
}

// The transfer ends as the first attempt ended, or for this reason.
void TransferDriver::EndRetry(Transfer* transfer, TransferState outcome, std::optional<Error> why) {
  table_.ClearTimer(transfer);
  transfer->EndRetry(outcome, std::move(why));
  Complete(transfer);
}

void TransferDriver::DeliverNotification(Transfer* transfer) {
  Admitted& admitted = transfer->admitted;
  transfer->is_notifying = true;
  admitted.status.state = TransferState::kRunning;
  table_.SetTimer(transfer, std::max(admitted.deadline, Clock::now()) + options_.quiesce_max);
  wire::Notification notification;
  notification.from_workload = admitted.status.workload;
  notification.from_workload_generation = admitted.workload_generation;
  // No id of a caller has a slash; the id of a transfer may be used again.
  notification.id = "transfer/" + admitted.status.id + "/" + std::to_string(transfer->token);
  notification.content = *std::exchange(admitted.notify, std::nullopt);
  const auto done = [post = post_, token = transfer->token](const Status& outcome,
                                                            std::optional<microseconds>) {
    post(
        [token, outcome](TransferDriver& driver) { driver.NotificationDelivered(token, outcome); });
  };
  if (notifications_ == nullptr) {
    return done(Fail(ErrorCode::kPathUnavailable, "this sidecar carries no notifications"),
                std::nullopt);
  }
  notifications_->SendOfTransfer(admitted.status.peer, std::move(notification), admitted.deadline,
                                 done);
}

void TransferDriver::NotificationDelivered(uint64_t token, const Status& outcome) {
  Transfer* const transfer = table_.Find(token);
  if (transfer == nullptr || !transfer->is_notifying) return;
  table_.ClearTimer(transfer);
  transfer->EndNotification(outcome);
  Complete(transfer);
}

void TransferDriver::Complete(Transfer* transfer) {
  const TimePoint now = Clock::now();
  transfer->admitted.request.reset();
  accounts_.Ended(*transfer, now);  // before the answers: who has one finds it in metrics, events
  for (const auto& reply : transfer->waiting) reply->Set(transfer->admitted.status);
  transfer->waiting.clear();
  table_.KeepFinished(*transfer, now);
}

}  // namespace gantry::engine
