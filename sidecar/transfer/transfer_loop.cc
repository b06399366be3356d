#include "sidecar/transfer/transfer_loop.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "lib/base/thread.h"
#include "sidecar/transfer/transfer_fingerprint.h"

namespace gantry::engine {
namespace {

// How long the loop may sleep with nothing to do: only a bound, everything wakes it.
constexpr milliseconds kIdleWait{1'000};
// A shorter wait costs more than the wake-ups that it saves.
constexpr microseconds kWaitIgnoringCompletionsMin{50};
// A job of a GPU takes half of that; one that waits for its turn on a busy GPU takes longer.
constexpr milliseconds kLookAgainMax{1};

}  // namespace

TransferLoop::TransferLoop(const TransferDriver::Parts& parts, worker::DriverSleep& sleep)
    : sleep_(sleep),
      driver_spin_(parts.options.driver_spin),
      transfers_(parts, [this](Task task) { Post(std::move(task)); }),
      thread_(StartThread("gantry-engine", [this] { Run(); })) {}

TransferLoop::~TransferLoop() {
  Close();
  {
    const MutexLock lock(inbox_mutex_);
    stopping_ = true;
  }
  sleep_.WakeWaiter();
  if (thread_) thread_->join();
}

void TransferLoop::Run() {
  driver_.lock();
  while (true) {
    if (RunOnce()) continue;
    {
      const MutexLock lock(inbox_mutex_);
      if (!inbox_.empty()) continue;
      if (stopping_ && transfers_.table().active() == 0) break;
    }
    if (ShouldPollAgain()) {
      ::sched_yield();
      continue;
    }
    sleeps_until_ = std::min(transfers_.next_due(), Clock::now() + kIdleWait);
    Sleep(sleeps_until_);
  }
  driver_.unlock();
}

bool TransferLoop::RunOnce() noexcept {
  looked_ = Clock::now();
  sleep_.ClearWakeRequests();
  const bool any = RunTasks();
  polled_ = transfers_.Poll();
  return polled_.progressed || any;
}

bool TransferLoop::RunTasks() {
  {
    const MutexLock lock(inbox_mutex_);
    tasks_.swap(inbox_);
  }
  for (const auto& task : tasks_) task(transfers_);
  const bool any = !tasks_.empty();
  tasks_.clear();
  return any;
}

// Counted from the look, not from now: a thread that lost its processor since then would sleep
// while a transport believes that it is looked after.
bool TransferLoop::ShouldPollAgain() const {
  return polled_.should_spin && looked_ - transfers_.last_carried() < kLookAgainMax;
}

void TransferLoop::Sleep(TimePoint deadline) {
  const nanoseconds poll_interval = std::min<nanoseconds>(polled_.poll_interval, kIdleWait);
  if (poll_interval < kWaitIgnoringCompletionsMin) return sleep_.Wait(deadline, &driver_);
  sleep_.WaitIgnoringCompletions(std::min(deadline, Clock::now() + poll_interval), &driver_);
}

void TransferLoop::AddToInbox(Task task) {
  const MutexLock lock(inbox_mutex_);
  inbox_.push_back(std::move(task));
}

void TransferLoop::Post(Task task) {
  AddToInbox(std::move(task));
  sleep_.WakeWaiter();
}

void TransferLoop::PostAndDrive(Task task, const Reply& reply, TimePoint wait_until) {
  AddToInbox(std::move(task));
  if (!driver_.TryLock()) return sleep_.WakeWaiter();
  sleep_.BeginDriving();
  RunOnce();
  if (reply.wait()) {
    const auto drive = [&]() NO_THREAD_SAFETY_ANALYSIS {  // this thread holds driver_
      if (!reply.is_set()) RunOnce();
      return reply.is_set();
    };
    driver_spin_.Until(drive, wait_until);
    while (!reply.is_set() && ShouldPollAgain() && Clock::now() < wait_until) {
      ::sched_yield();
      RunOnce();
    }
  }
  sleep_.EndDriving(/*wake=*/transfers_.next_due() < sleeps_until_ || ShouldPollAgain());
  driver_.unlock();
}

Result<TransferStatus> TransferLoop::PostAndAwait(
    const Key& key, TimePoint wait_until,
    std::function<void(TransferDriver&, const std::shared_ptr<Reply>&)> query) {
  auto reply = std::make_shared<Reply>(wait_until > Clock::now());
  PostAndDrive([query = std::move(query), reply](TransferDriver& driver) { query(driver, reply); },
               *reply, wait_until);
  // Without a wait the reply is only as far away as the driver.
  const bool is_set = reply->WaitUntil(reply->wait() ? wait_until : TimePoint::max());
  if (is_set) return reply->Take();
  auto status = std::make_shared<Reply>(false);
  PostAndDrive(
      [key, reply, status](TransferDriver& driver) {
        if (Transfer* transfer = driver.table().Find(key)) std::erase(transfer->waiting, reply);
        driver.Query(key, status);
      },
      *status);
  status->WaitUntil(TimePoint::max());
  return status->Take();
}

void TransferLoop::Visit(Task task) {
  auto done = std::make_shared<Reply>(false);
  PostAndDrive(
      [task = std::move(task), done](TransferDriver& driver) {
        task(driver);
        done->Set(TransferStatus{});
      },
      *done);
  done->WaitUntil(TimePoint::max());
}

void TransferLoop::Close() {
  Post([](TransferDriver& driver) { driver.Close(); });
}

void TransferLoop::SetNotifications(NotificationCenter* notifications) {
  Post([notifications](TransferDriver& driver) { driver.SetNotifications(notifications); });
}

Result<TransferStatus> TransferLoop::Insert(Admitted&& admitted, TimePoint wait_until) {
  const Key key(admitted.status.workload, admitted.status.id);
  auto shared = std::make_shared<Admitted>(std::move(admitted));
  return PostAndAwait(key, wait_until, [shared](TransferDriver& driver, const auto& reply) {
    driver.Accept(shared.get(), reply);
  });
}

Result<TransferStatus> TransferLoop::Get(std::string_view workload, std::string_view id,
                                         TimePoint wait_until) {
  const Key key(workload, id);
  return PostAndAwait(key, wait_until, [key](TransferDriver& driver, const auto& reply) {
    driver.Query(key, reply);
  });
}

Result<TransferStatus> TransferLoop::GetSame(const wire::TransferRequest& request,
                                             TimePoint wait_until) {
  const Key key(request.workload, request.id);
  return PostAndAwait(
      key, wait_until,
      [key, fingerprint = FingerprintOf(request)](TransferDriver& driver, const auto& reply) {
        driver.Query(key, reply, fingerprint);
      });
}

Result<TransferStatus> TransferLoop::Cancel(std::string_view workload, std::string_view id,
                                            TimePoint wait_until) {
  const Key key(workload, id);
  return PostAndAwait(key, wait_until, [key](TransferDriver& driver, const auto& reply) {
    driver.Cancel(key, reply);
  });
}

std::vector<TransferStatus> TransferLoop::List(std::string_view workload, bool active_only,
                                               size_t limit) {
  auto list = std::make_shared<std::vector<TransferStatus>>();
  Visit([workload = std::string(workload), active_only, limit, list](TransferDriver& driver) {
    *list = driver.table().List(workload, active_only, limit);
  });
  return std::move(*list);
}

EngineTotals TransferLoop::Totals() {
  auto totals = std::make_shared<EngineTotals>();
  Visit([totals](TransferDriver& driver) { *totals = driver.table().Totals(); });
  return *totals;
}

void TransferLoop::Stop(Match match, TransferState outcome, Error why) {
  Post([match = std::move(match), outcome, why = std::move(why)](TransferDriver& driver) {
    driver.Stop(match, outcome, why);
  });
}

void TransferLoop::ForgetIds(Match match) {
  Post([match = std::move(match)](TransferDriver& driver) { driver.table().ForgetIds(match); });
}

void TransferLoop::EndWorkload(uint64_t workload_generation) {
  Post([workload_generation](TransferDriver& driver) { driver.EndWorkload(workload_generation); });
}

}  // namespace gantry::engine
