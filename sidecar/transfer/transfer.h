// One transfer in the engine's table: its resources while it runs, and its status. Used by the
// driver.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sidecar/messaging/transfer_status.h"
#include "sidecar/transfer/reply.h"
#include "sidecar/transfer/transfer_admission.h"

namespace gantry::engine {

struct Transfer {
  Transfer(Admitted&& admitted_in, uint64_t token_in, TimePoint accepted_in);

  // Returns the current status; constant once terminal.
  TransferStatus Snapshot(TimePoint now) const;
  bool waits_for_fence() const { return !begun && operation != nullptr; }
  // Fixes the status and releases plan, mappings and buffers. REQUIRES a finished operation.
  void End(TimePoint now, size_t failed_items_max);

  // Keeps how the first attempt ended, and runs again from here on. REQUIRES that it has ended.
  void BeginRetry();
  // Takes what the second attempt uses, and its path. REQUIRES is_refreshing().
  void TakeSecondAttempt(Admitted&& fresh);
  // The status is how the first attempt ended, or this. REQUIRES is_refreshing().
  void EndRetry(TransferState outcome, std::optional<Error> why);
  // It succeeded; `outcome`: whether its notification was delivered. REQUIRES is_notifying.
  void EndNotification(const Status& outcome);

  bool is_terminal() const { return operation == nullptr && !is_notifying && !is_refreshing(); }
  bool is_refreshing() const { return refused != nullptr; }

  const uint64_t token;
  Admitted admitted;
  std::unique_ptr<transport::Operation> operation;  // null when no byte can move any more
  const TimePoint accepted;
  std::optional<TimePoint> begun;         // passed to the transport, after its fence
  std::optional<TimePoint> timer;         // the loop's timer for it
  std::optional<TimePoint> stop_started;  // cancelled, expired or stopped
  // Every byte has moved; the notification is being delivered.
  bool is_notifying = false;
  bool was_retried = false;  // after its start, or is about to be
  // The result of the first attempt, while its buffers are described again.
  std::unique_ptr<TransferStatus> refused;
  uint64_t chunks_retried = 0;  // set when the operation is destroyed
  bool aborted = false;         // the operation was aborted
  TransferState stop_outcome = TransferState::kCancelled;
  std::optional<Error> stop_reason;
  std::vector<std::shared_ptr<Reply>> waiting;  // for its end
};

}  // namespace gantry::engine
