// Drives transfers from their acceptance to their end: feeds the transports, watches fences and
// deadlines, tries once more, and ends each transfer once. By one thread at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/messaging/notification_center.h"
#include "sidecar/transfer/delegation.h"
#include "sidecar/transfer/ended_workloads.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/fence_watch.h"
#include "sidecar/transfer/reply.h"
#include "sidecar/transfer/stale_retry.h"
#include "sidecar/transfer/transfer_accounts.h"
#include "sidecar/transfer/transfer_table.h"

namespace gantry::engine {

class TransferDriver {
 public:
  using Key = TransferTable::Key;
  using Task = std::function<void(TransferDriver&)>;
  using Match = TransferTable::Match;

  // The objects that it works with; they outlive the driver. Close `retry`, and end all
  // notifications, before the thread that runs the posted tasks ends.
  struct Parts {
    const EngineOptions& options;
    const std::vector<std::unique_ptr<transport::Transport>>& transports;
    DelegatedTransfers& delegated;
    StaleRetry& retry;
    EventLog& events;
    metrics::Metrics& metrics;
  };

  // `post`: called from any thread; has the driving thread run the task soon.
  TransferDriver(const Parts& parts, std::function<void(Task)> post)
      : options_(parts.options),
        transports_(parts.transports),
        delegated_(parts.delegated),
        retry_(parts.retry),
        post_(std::move(post)),
        table_(parts.options),
        accounts_(parts.transports, parts.events, parts.metrics) {}

  // Before the first transfer; it outlives the driver. Without it no notification is delivered.
  void SetNotifications(NotificationCenter* notifications) { notifications_ = notifications; }

  // Looks at everything once, and polls each transport.
  transport::PollOutcome Poll();
  // When to look again although nothing happens.
  TimePoint next_due() const { return std::min(table_.next_timer(), fences_.next()); }
  // When a transport last had something to do.
  TimePoint last_carried() const { return last_carried_; }
  TransferTable& table() { return table_; }

  // Answers as Query does, for the new transfer, or for the same one that is known.
  void Accept(Admitted* admitted, const std::shared_ptr<Reply>& reply);
  // Sets the status now or, if the reply waits, when the transfer is terminal. kConflict: its
  // content has another fingerprint than this.
  void Query(const Key& key, const std::shared_ptr<Reply>& reply,
             std::optional<uint64_t> fingerprint = std::nullopt);
  // Stops the transfer first.
  void Cancel(const Key& key, const std::shared_ptr<Reply>& reply);
  // Stops those of the running transfers that `match` picks.
  void Stop(const Match& match, TransferState outcome, const Error& why);
  // Refuses the transfers of this life of a workload that come later.
  void EndWorkload(uint64_t generation) { ended_.Add(generation); }
  // Stops all, and accepts no more.
  void Close();

 private:
  transport::PollOutcome PollTransports();
  bool PollFences();
  bool FireTimers(TimePoint now);
  void TakePath(DelegatedTransfers::Accepted accepted);
  Status CheckRoom(const Admitted& admitted) const;
  void Begin(Transfer* transfer);
  void HandleReady(Transfer* transfer);
  void StopOne(Transfer* transfer, TransferState outcome, Error why);
  void Finish(Transfer* transfer);  // no byte of it moves any more
  void Retry(Transfer* transfer, StaleRetry::Attempt attempt);
  void Retried(uint64_t token, Result<Admitted>* again);
  void EndRetry(Transfer* transfer, TransferState outcome = TransferState::kFailed,
                std::optional<Error> why = std::nullopt);
  void DeliverNotification(Transfer* transfer);
  void NotificationDelivered(uint64_t token, const Status& outcome);
  void Complete(Transfer* transfer);  // terminal from here on

  const EngineOptions& options_;
  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  DelegatedTransfers& delegated_;
  StaleRetry& retry_;
  const std::function<void(Task)> post_;
  NotificationCenter* notifications_ = nullptr;

  TransferTable table_;
  TransferAccounts accounts_;
  FenceWatch fences_;
  EndedWorkloads ended_;
  TimePoint last_carried_;
  bool closing_ = false;

  // Scratch of Poll.
  std::vector<uint64_t> finished_now_;
  std::vector<uint64_t> reached_now_;
  std::vector<DelegatedTransfers::Accepted> accepted_now_;
};

}  // namespace gantry::engine
