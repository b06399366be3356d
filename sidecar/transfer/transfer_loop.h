// The table of transfers and what drives it: feeds the transports, watches deadlines and ends each
// transfer once. One thread at a time is the driver: the engine's own, or, while that sleeps, one
// that waits for an answer, which spares it two wake-ups.
// Public functions are thread-safe, but must not be called from the driver itself.
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
  ~TransferLoop();  // Close(), and returns when all transfers are quiet

  // kResourceExhausted: it has no thread, and must not be used.
  const Status& started() const { return started_; }

  void Close();

  // Before the first transfer; outlives it. Whoever carries its messages ends before this does.
  void SetNotifications(NotificationCenter* notifications) { notifications_ = notifications; }
  // Likewise; closed before this ends.
  void SetRetry(StaleRetry* retry) { retry_ = retry; }
  // Transfers that peers execute.
  DelegatedTransfers& delegated() { return delegated_; }

  Result<TransferStatus> Insert(Admitted&& admitted, TimePoint wait_until);
  // The transfer's status at `wait_until`, or as soon as it is terminal.
  Result<TransferStatus> Get(std::string_view workload, std::string_view id, TimePoint wait_until);
  // The transfer with the request's id, if its content is the same: kConflict when it is not.
  Result<TransferStatus> GetSame(const wire::TransferRequest& request, TimePoint wait_until);
  Result<TransferStatus> Cancel(std::string_view workload, std::string_view id,
                                TimePoint wait_until);
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit);
  // Stops the running transfers that `match` picks; it is asked by the driver.
  void Stop(std::function<bool(const Transfer&)> match, TransferState outcome, Error why);
  // The ids of the finished transfers that `match` picks can be used again; likewise.
  void ForgetIds(std::function<bool(const Transfer&)> match);
  // The transfers of this life of a workload are over: those that are still on their way are
  // refused when they arrive.
  void EndWorkload(uint64_t workload_generation);
  EngineTotals Totals();

 private:
  using Key = std::pair<std::string, std::string>;  // workload, id
  struct BusyTime {
    int running = 0;
    TimePoint since;
  };

  // Any thread.
  void Post(std::function<void()> task) EXCLUDES(inbox_mutex_);
  // Likewise; drives for a moment if nobody else does, or as long as devices move bytes, until the
  // answer is there or `wait_until`.
  void Ask(std::function<void()> task, const Answer& answer, TimePoint wait_until = {})
      EXCLUDES(inbox_mutex_);
  Result<TransferStatus> Await(const std::shared_ptr<Answer>& answer, Key key,
                               TimePoint wait_until);
  static tl::unexpected<Error> Conflict(const std::string& id);

  // The driver only. Without memory in the middle of a change the process ends: others would wait
  // for a driver that is gone, or go on with half of the change.
  void Run();
  bool RunOnce() noexcept EXCLUDES(inbox_mutex_);
  // Devices move bytes, and something happened lately: to look again is better than to sleep.
  void CountPath(const Admitted& admitted) const;
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
  void Finish(Transfer* transfer);  // no byte of it moves any more
  std::optional<StaleRetry::Attempt> RetryOf(const Transfer& transfer, TimePoint now) const;
  void Retry(Transfer* transfer, StaleRetry::Attempt attempt);
  void Retried(uint64_t token, Result<Admitted>* again);
  void EndRetry(Transfer* transfer, TransferState outcome = TransferState::kFailed,
                std::optional<Error> why = std::nullopt);
  void CountFailure(const TransferStatus& status, std::optional<ErrorCode> counted);
  void NoteFailure(const TransferStatus& status);
  void Announce(Transfer* transfer);
  void Announced(uint64_t token, const Status& outcome);
  void Settle(Transfer* transfer);  // terminal from here on
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

  Mutex driver_;  // whoever holds it is the driver, to whom everything below belongs
  absl::btree_map<uint64_t, std::unique_ptr<Transfer>> transfers_;  // by token: in order of age
  absl::flat_hash_map<Key, uint64_t> tokens_;
  absl::btree_set<std::pair<TimePoint, uint64_t>> timers_;
  std::deque<std::pair<TimePoint, uint64_t>> finished_;  // when, token
  std::vector<uint64_t> finished_now_;
  DelegatedTransfers delegated_;
  std::vector<DelegatedTransfers::Accepted> accepted_now_;
  FenceWatch fences_;
  std::vector<uint64_t> reached_now_;
  std::vector<std::function<void()>> tasks_;
  std::array<std::array<BusyTime, wire::kPathCount>, 2> busy_;
  uint64_t next_token_ = 1;
  TimePoint last_moved_;       // when transports had something to do
  TimePoint looked_{};         // when the driver began its last round
  TimePoint next_due_;         // when there is something to do though nothing happens
  TimePoint sleeps_until_;     // the engine's thread, when it sleeps
  size_t finished_items_ = 0;  // failed items that are kept
  absl::flat_hash_set<uint64_t> ended_workloads_;  // generations
  std::deque<uint64_t> ended_order_;
  bool closing_ = false;

  Status started_;
  std::jthread thread_;
};

}  // namespace gantry::engine
