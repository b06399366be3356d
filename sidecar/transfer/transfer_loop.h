// The table of transfers and its driver: polls the transports, watches deadlines and ends each
// transfer once. One thread at a time is the driver. This is the engine's thread or, while that
// sleeps, a caller waiting for an answer, which saves two wake-ups. Public functions are
// thread-safe, but must not be called from the driver itself.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>
#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/transfer/answer.h"
#include "sidecar/transfer/delegation.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/fence_watch.h"
#include "sidecar/transfer/stale_retry.h"
#include "sidecar/transfer/transfer.h"
#include "sidecar/transfer/trouble_log.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::engine {

class TransferLoop {
 public:
  TransferLoop(const EngineOptions& options, worker::CopyPool& pool,
               const std::vector<std::unique_ptr<transport::Transport>>& transports,
               EventLog& events, metrics::Metrics& metrics);
  ~TransferLoop();  // calls Close(), then blocks until all transfers are quiet

  // kResourceExhausted when its thread could not be created: the loop must not be used then.
  const Status& started() const { return started_; }

  // Cancels all transfers with kShuttingDown and accepts no more. Returns at once.
  void Close();

  // Call before the first transfer; `notifications` outlives it. Its messenger ends before the
  // loop.
  void SetNotifications(NotificationCenter* notifications) { notifications_ = notifications; }
  // Call before the first transfer; `retry` is closed before the loop ends.
  void SetRetry(StaleRetry* retry) { retry_ = retry; }
  // Transfers that peers execute.
  DelegatedTransfers& delegated() { return delegated_; }

  // Starts an admitted transfer. Returns its status at `wait_until`, or when it is terminal.
  Result<TransferStatus> Insert(Admitted&& admitted, TimePoint wait_until);
  // Returns the status at `wait_until`, or when the transfer is terminal.
  Result<TransferStatus> Get(std::string_view workload, std::string_view id, TimePoint wait_until);
  // Finds the transfer with the request's id; kConflict when its content differs.
  Result<TransferStatus> GetSame(const wire::TransferRequest& request, TimePoint wait_until);
  Result<TransferStatus> Cancel(std::string_view workload, std::string_view id,
                                TimePoint wait_until);
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit);
  // Stops the running transfers that `match` selects. The driver calls `match`.
  void Stop(std::function<bool(const Transfer&)> match, TransferState outcome, Error why);
  // Makes the ids of finished transfers that `match` selects reusable. The driver calls `match`.
  void ForgetIds(std::function<bool(const Transfer&)> match);
  // The registration of the workload has ended: transfers of it that are still being admitted are
  // refused.
  void EndWorkload(uint64_t workload_generation);
  EngineTotals Totals();

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id
  struct BusyTime {
    int running = 0;
    TimePoint since;
  };

  // Queues a task for the driver. Any thread.
  void Post(std::function<void()> task) EXCLUDES(inbox_mutex_);
  // Queues a task, and drives the loop if no other thread does. It drives for a short spin, or
  // while devices move bytes, until the answer is given or `wait_until`. Any thread.
  void Ask(std::function<void()> task, const Answer& answer, TimePoint wait_until = {})
      EXCLUDES(inbox_mutex_);
  Result<TransferStatus> Await(const std::shared_ptr<Answer>& answer, Key key,
                               TimePoint wait_until);
  static tl::unexpected<Error> Conflict(const std::string& id);

  // The following are called by the driver only. Out of memory ends the process here (noexcept),
  // since a half-made change would corrupt the table.
  void Run();
  bool RunOnce() noexcept EXCLUDES(inbox_mutex_);
  void CountPath(const Admitted& admitted) const;
  // True when polling again beats sleeping: devices move bytes and something happened recently.
  bool IsToLookAgain() const;
  bool RunTasks() EXCLUDES(inbox_mutex_);
  bool PollTransports();
  void TakePath(DelegatedTransfers::Accepted accepted);
  bool PollFences();
  void Sleep(TimePoint deadline);
  bool FireTimers(TimePoint now);
  void Accept(Admitted* admitted, const std::shared_ptr<Answer>& answer);
  void Begin(Transfer* transfer);
  Status CheckRoom(const Admitted& admitted) const;
  void Look(const Key& key, const std::shared_ptr<Answer>& answer, bool cancel);
  void StopOne(Transfer* transfer, TransferState outcome, Error why);
  void SetTimer(Transfer* transfer, TimePoint when);
  void Attend(Transfer* transfer);
  void Finish(Transfer* transfer);  // no byte of it can move any more
  std::optional<StaleRetry::Attempt> RetryOf(const Transfer& transfer, TimePoint now) const;
  void Retry(Transfer* transfer, StaleRetry::Attempt attempt);
  void Retried(uint64_t token, Result<Admitted>* again);
  void EndRetry(Transfer* transfer, TransferState outcome = TransferState::kFailed,
                std::optional<Error> why = std::nullopt);
  void CountFailure(const TransferStatus& status, std::optional<ErrorCode> counted);
  void NoteFailure(const TransferStatus& status);
  void Announce(Transfer* transfer);
  void Announced(uint64_t token, const Status& outcome);
  void Settle(Transfer* transfer);  // makes it terminal
  void Account(const Transfer& transfer, TimePoint ended);
  void TrackBusy(const Transfer& transfer, int change, TimePoint now);
  void ForgetOldTransfers(TimePoint now);
  void ForgetId(const Transfer& transfer);
  void Forget(const Transfer& transfer);
  Transfer* Find(const Key& key);

  const EngineOptions& options_;
  worker::CopyPool& pool_;
  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  EventLog& events_;
  metrics::Metrics& metrics_;
  TroubleLog failures_{"a transfer did not succeed"};
  NotificationCenter* notifications_ = nullptr;
  StaleRetry* retry_ = nullptr;

  std::atomic<size_t> active_{0};
  std::atomic<uint64_t> bytes_inflight_{0};

  Mutex inbox_mutex_;
  std::vector<std::function<void()>> inbox_ GUARDED_BY(inbox_mutex_);
  bool stopping_ GUARDED_BY(inbox_mutex_) = false;

  Mutex driver_;  // its holder is the driver, which alone uses everything below
  absl::btree_map<uint64_t, std::unique_ptr<Transfer>> transfers_;  // by token, in order of age
  absl::flat_hash_map<Key, uint64_t> tokens_;
  absl::btree_set<std::pair<TimePoint, uint64_t>> timers_;
  std::deque<std::pair<TimePoint, uint64_t>> finished_;  // time, token
  std::vector<uint64_t> finished_now_;
  DelegatedTransfers delegated_;
  std::vector<DelegatedTransfers::Accepted> accepted_now_;
  FenceWatch fences_;
  std::vector<uint64_t> reached_now_;
  std::vector<std::function<void()>> tasks_;
  std::array<std::array<BusyTime, wire::kPathCount>, 2> busy_;
  uint64_t next_token_ = 1;
  TimePoint last_moved_;                           // when a transport last progressed
  TimePoint looked_{};                             // start of the driver's last round
  TimePoint next_due_;                             // next time to act without an event
  TimePoint sleeps_until_;                         // until when the engine's thread sleeps
  size_t finished_items_ = 0;                      // failed items kept in the table
  absl::flat_hash_set<uint64_t> ended_workloads_;  // their generations
  std::deque<uint64_t> ended_order_;
  bool closing_ = false;

  Status started_;
  std::jthread thread_;
};

}  // namespace gantry::engine
