// Decides which thread drives the transfers, and carries the requests of the others to it. The
// driver is the loop's own thread or, while that sleeps, one that waits for a reply: this spares
// it two wake-ups. Thread-safe; no function may be called by the driver itself.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/base/bounded_spin.h"
#include "lib/base/mutex.h"
#include "sidecar/transfer/reply.h"
#include "sidecar/transfer/transfer_driver.h"
#include "sidecar/worker/channel/driver_sleep.h"

namespace gantry::engine {

class TransferLoop {
 public:
  using Match = TransferDriver::Match;

  TransferLoop(const TransferDriver::Parts& parts, worker::DriverSleep& sleep);
  ~TransferLoop();  // Close(), and returns when all transfers are quiet

  // kResourceExhausted: it has no thread, and must not be used.
  Status started() const { return thread_ ? Status{} : Fail(thread_.error()); }

  void Close();

  // Before the first transfer. They outlive it; what carries their messages ends before this does.
  void SetNotifications(NotificationCenter* notifications);

  // Returns the status at `wait_until`, or as soon as the transfer is terminal.
  Result<TransferStatus> Insert(Admitted&& admitted, TimePoint wait_until);
  Result<TransferStatus> Get(std::string_view workload, std::string_view id, TimePoint wait_until);
  // The transfer with the request's id, if its content is the same: kConflict when it is not.
  Result<TransferStatus> GetSame(const wire::TransferRequest& request, TimePoint wait_until);
  Result<TransferStatus> Cancel(std::string_view workload, std::string_view id,
                                TimePoint wait_until);
  std::vector<TransferStatus> List(std::string_view workload, bool active_only, size_t limit);
  EngineTotals Totals();

  // As TransferDriver has them; they return at once, and the driver calls `match`.
  void Stop(Match match, TransferState outcome, Error why);
  void ForgetIds(Match match);
  void EndWorkload(uint64_t workload_generation);

 private:
  using Key = TransferDriver::Key;
  using Task = TransferDriver::Task;

  void Post(Task task) EXCLUDES(inbox_mutex_);
  void AddToInbox(Task task) EXCLUDES(inbox_mutex_);
  // Posts the task. If nobody drives, this thread does: until the reply is there for a moment, and
  // until `wait_until` as long as devices move bytes.
  void PostAndDrive(Task task, const Reply& reply, TimePoint wait_until = {})
      EXCLUDES(inbox_mutex_);
  // Returns the reply or, at `wait_until`, the status then.
  Result<TransferStatus> PostAndAwait(
      const Key& key, TimePoint wait_until,
      std::function<void(TransferDriver&, const std::shared_ptr<Reply>&)> query);
  // Has the task run and returns when it has.
  void Visit(Task task);

  void Run();
  // Without memory in the middle of a change the process ends: others would wait for a driver that
  // is gone, or go on with half of the change.
  bool RunOnce() noexcept REQUIRES(driver_) EXCLUDES(inbox_mutex_);
  bool RunTasks() REQUIRES(driver_) EXCLUDES(inbox_mutex_);
  // Devices move bytes, and something happened lately: to look again is better than to sleep.
  bool ShouldPollAgain() const REQUIRES(driver_);
  void Sleep(TimePoint deadline) REQUIRES(driver_);

  worker::DriverSleep& sleep_;
  const BoundedSpin driver_spin_;

  Mutex inbox_mutex_;
  std::vector<Task> inbox_ GUARDED_BY(inbox_mutex_);
  bool stopping_ GUARDED_BY(inbox_mutex_) = false;

  Mutex driver_;  // held by the driver; taken before inbox_mutex_
  TransferDriver transfers_ GUARDED_BY(driver_);
  std::vector<Task> tasks_ GUARDED_BY(driver_);        // scratch of RunTasks
  TimePoint looked_ GUARDED_BY(driver_){};             // when the last round began
  transport::PollOutcome polled_ GUARDED_BY(driver_);  // of the last round
  TimePoint sleeps_until_ GUARDED_BY(driver_);         // the loop's thread, when it sleeps

  Result<std::jthread> thread_;
};

}  // namespace gantry::engine
