#include "sidecar/transfer/transfer.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace gantry::engine {
namespace {

uint64_t MicrosBetween(TimePoint from, TimePoint to) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, std::chrono::duration_cast<microseconds>(to - from).count()));
}

int64_t UnixMillisNow() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Which of them a truncated file lacked is not known.
std::vector<uint32_t> AllItemsOf(const transport::MovePlan& plan) {
  std::vector<uint32_t> items(plan.item_order.empty() ? plan.descriptors_in
                                                      : plan.item_order.size());
  std::iota(items.begin(), items.end(), 0u);
  return items;
}

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

Transfer::Transfer(Admitted&& admitted_in, uint64_t token_in, TimePoint accepted_in)
    : token(token_in), admitted(std::move(admitted_in)), accepted(accepted_in) {
  admitted.status.timings.accepted_unix_ms = UnixMillisNow();
  admitted.status.timings.admit_us = MicrosBetween(admitted.begun, accepted);
}

TransferStatus Transfer::Snapshot(TimePoint now) const {
  TransferStatus status = admitted.status;
  if (operation == nullptr) return status;
  const transport::Progress& progress = operation->progress();
  status.bytes_moved = progress.bytes;
  status.chunks = progress.chunks_total;  // a transport may cut the plan's segments
  status.chunks_moved = progress.chunks;
  status.workers = progress.workers;
  status.staged_bytes = progress.staged_bytes;
  if (progress.gpu_jobs_by_engine + progress.gpu_jobs_by_kernel > 0) {
    status.gpu_copies = {progress.gpu_jobs_by_engine, progress.gpu_jobs_by_kernel,
                         transport::TextOf(progress.gpu_reason), progress.gpu_jobs_by_reason};
  }
  status.timings.copy_us = progress.copy_nanoseconds / 1000;
  status.timings.total_us = MicrosBetween(admitted.begun, now);
  if (admitted.fence) status.timings.fence_us = MicrosBetween(accepted, begun.value_or(now));
  if (progress.first_posted) {
    status.timings.queue_us = MicrosBetween(begun.value_or(accepted), *progress.first_posted);
    status.timings.move_us = MicrosBetween(*progress.first_posted, now);
  }
  status.state = stop_started || operation->error() ? TransferState::kStopping
                 : progress.first_posted            ? TransferState::kRunning
                                                    : TransferState::kQueued;
  return status;
}

void Transfer::End(TimePoint now, size_t failed_items_max) {
  TransferStatus status = Snapshot(now);
  const bool moved = status.chunks_moved == status.chunks;
  const Status whole =
      moved ? transport::CheckNotTruncated(admitted.plan->local, admitted.plan->remote) : Status();
  const bool complete = moved && whole;
  if (!whole) {
    status.state = TransferState::kFailed;
    status.error = whole.error();
  } else if (complete) {
    status.state = TransferState::kSucceeded;
  } else if (stop_reason) {  // which a failure before it is not overwritten by
    status.state = stop_outcome;
    status.error = stop_reason;
    // A peer that executed it may have had something to say beside that it stopped.
    const auto& said = operation->error();
    if (admitted.delegation != nullptr && said && said->code == ErrorCode::kPeerLost) {
      status.error->message += "; " + said->message;
    }
  } else {
    status.state = TransferState::kFailed;
    status.error = operation->error();
  }
  if (!complete) {
    const std::vector<uint32_t>& order = admitted.plan->item_order;
    std::vector<uint32_t> items = moved ? AllItemsOf(*admitted.plan) : operation->UnfinishedItems();
    for (uint32_t& item : items) item = order.empty() ? item : order[item];
    std::sort(items.begin(), items.end());
    status.failed_items_truncated = items.size() > failed_items_max;
    if (status.failed_items_truncated) items.resize(failed_items_max);
    items.shrink_to_fit();
    status.failed_items = std::make_shared<const std::vector<uint32_t>>(std::move(items));
  }
  admitted.status = std::move(status);
  operation.reset();
  admitted.plan.reset();
  admitted.reservation.Reset();
  admitted.remotes.clear();
  admitted.fence.reset();
  admitted.uses.clear();
}

void Transfer::BeginRetry() {
  TransferStatus& status = admitted.status;
  was_retried = true;
  refused = std::make_unique<TransferStatus>(status);
  status.state = TransferState::kRunning;
  status.error.reset();
  status.failed_items = nullptr;
  status.failed_items_truncated = false;
  status.bytes_moved = status.chunks_moved = 0;
  begun.reset();
  stop_started.reset();
  stop_reason.reset();
  aborted = false;
}

void Transfer::TakeSecondAttempt(Admitted&& fresh) {
  refused.reset();
  admitted.uses = std::move(fresh.uses);
  admitted.remotes = std::move(fresh.remotes);
  admitted.reservation = std::move(fresh.reservation);
  admitted.plan = std::move(fresh.plan);
  admitted.transport = fresh.transport;
  admitted.delegation = std::move(fresh.delegation);
  admitted.reading = std::move(fresh.reading);
  admitted.rdma_obstacle = fresh.rdma_obstacle;
  admitted.blocked_by_tcp = fresh.blocked_by_tcp;
  TransferStatus& status = admitted.status;
  status.retries = 1;
  status.executed_by_peer = fresh.status.executed_by_peer;
  status.path = fresh.status.path;
  status.paths = std::move(fresh.status.paths);
  status.bytes = fresh.status.bytes;
  status.chunks = fresh.status.chunks;
  status.descriptors_in = fresh.status.descriptors_in;
  status.descriptors_out = fresh.status.descriptors_out;
}

void Transfer::EndRetry(TransferState outcome, std::optional<Error> why) {
  TransferStatus& status = admitted.status;
  status = std::move(*refused);
  refused.reset();
  if (!why) return;
  status.state = outcome;
  status.error = std::move(why);
}

void Transfer::EndNotification(const Status& outcome) {
  is_notifying = false;
  TransferStatus& status = admitted.status;
  status.state = TransferState::kSucceeded;
  status.notified = outcome.has_value();
  if (!outcome) status.notify_error = NotTold(outcome.error());
  status.timings.total_us = MicrosBetween(admitted.begun, Clock::now());
}

}  // namespace gantry::engine
