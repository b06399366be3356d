#include "sidecar/engine/transfer_loop.h"

#include <algorithm>

#include "lib/base/adaptive_spin.h"
#include "lib/base/log.h"

namespace gantry::engine {
namespace {

tl::unexpected<Error> ConflictOf(const std::string& id) {
  return Fail(ErrorCode::kConflict, "transfer '" + id + "' exists with another content",
              "use a new id for a new transfer", "/id");
}

// How long the loop may sleep with nothing to do: only a bound, everything wakes it.
constexpr milliseconds kIdleWait{1'000};
// A small transfer is done sooner than its caller's thread could be woken.
constexpr microseconds kAnswerSpin{50};
// A shorter nap costs more than the wake-ups that it saves.
constexpr microseconds kNapMin{50};
// Long enough for an admission that was under way when its workload ended.
constexpr size_t kEndedWorkloadsKept = 4096;

}  // namespace

TransferLoop::TransferLoop(const EngineOptions& options, worker::CopyPool& pool,
                           const std::vector<std::unique_ptr<transport::Transport>>& transports,
                           EventLog& events, metrics::Metrics& metrics)
    : options_(options),
      pool_(pool),
      transports_(transports),
      events_(events),
      metrics_(metrics),
      thread_([this] { Run(); }) {}

TransferLoop::~TransferLoop() {
  Close();
  {
    const MutexLock lock(inbox_mutex_);
    stopping_ = true;
  }
  pool_.WakeWaiter();
  thread_.join();
}

void TransferLoop::Close() {
  Post([this] { closing_ = true; });
  Stop([](const Transfer&) { return true; }, TransferState::kCancelled,
       Error(ErrorCode::kShuttingDown, "the sidecar is stopping"));
}

void TransferLoop::Post(std::function<void()> task) {
  {
    const MutexLock lock(inbox_mutex_);
    inbox_.push_back(std::move(task));
  }
  pool_.WakeWaiter();
}

Result<TransferStatus> TransferLoop::Await(const std::shared_ptr<Answer>& answer, Key key,
                                           TimePoint wait_until) {
  static thread_local AdaptiveSpin spin(kAnswerSpin);
  const TimePoint start = Clock::now();
  const bool is_here = spin.Until([&] { return answer->is_given(); });
  // Without a wait the answer is only as far away as the engine's thread.
  auto result = answer->WaitUntil(answer->wait() ? wait_until : TimePoint::max());
  if (!is_here) spin.Slept(Clock::now() - start);
  if (result) return *std::move(result);
  auto look = std::make_shared<Answer>(false);
  Post([this, key = std::move(key), answer, look] {
    if (Transfer* transfer = Find(key); transfer != nullptr) std::erase(transfer->waiting, answer);
    Look(key, look, false);
  });
  return *look->WaitUntil(TimePoint::max());
}

Result<TransferStatus> TransferLoop::Insert(Admitted admitted, TimePoint wait_until) {
  Key key(admitted.status.workload, admitted.status.id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  auto shared = std::make_shared<Admitted>(std::move(admitted));
  Post([this, shared, answer] { Accept(shared.get(), answer); });
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::Get(std::string_view workload, std::string_view id,
                                         TimePoint wait_until) {
  Key key(workload, id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  Post([this, key, answer] { Look(key, answer, false); });
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::GetSame(const wire::TransferRequest& request,
                                             TimePoint wait_until) {
  Key key(request.workload, request.id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  Post([this, key, fingerprint = FingerprintOf(request), answer] {
    const Transfer* known = Find(key);
    if (known != nullptr && known->admitted.fingerprint != fingerprint) {
      return answer->Give(ConflictOf(key.second));
    }
    Look(key, answer, false);
  });
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::Cancel(std::string_view workload, std::string_view id,
                                            TimePoint wait_until) {
  Key key(workload, id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  Post([this, key, answer] { Look(key, answer, true); });
  return Await(answer, std::move(key), wait_until);
}

std::vector<TransferStatus> TransferLoop::List(std::string_view workload, bool active_only,
                                               size_t limit) {
  auto list = std::make_shared<std::vector<TransferStatus>>();
  auto done = std::make_shared<Answer>(false);
  Post([this, workload = std::string(workload), active_only, limit, list, done] {
    const TimePoint now = Clock::now();
    for (auto entry = transfers_.rbegin(); entry != transfers_.rend() && list->size() < limit;
         ++entry) {
      const Transfer& transfer = *entry->second;
      if (!workload.empty() && transfer.admitted.status.workload != workload) continue;
      if (active_only && transfer.is_terminal()) continue;
      list->push_back(transfer.Snapshot(now));
      list->back().failed_items = nullptr;
    }
    done->Give(TransferStatus{});
  });
  done->WaitUntil(TimePoint::max());
  return std::move(*list);
}

void TransferLoop::Stop(std::function<bool(const Transfer&)> match, TransferState outcome,
                        Error why) {
  Post([this, match = std::move(match), outcome, why = std::move(why)] {
    for (const auto& [token, transfer] : transfers_) {
      if (transfer->operation != nullptr && match(*transfer)) {
        StopOne(transfer.get(), outcome, why);
      }
    }
  });
}

void TransferLoop::ForgetIds(std::function<bool(const Transfer&)> match) {
  Post([this, match = std::move(match)] {
    for (const auto& [token, transfer] : transfers_) {
      if (transfer->is_terminal() && match(*transfer)) ForgetId(*transfer);
    }
  });
}

void TransferLoop::EndWorkload(uint64_t workload_generation) {
  Post([this, workload_generation] {
    if (!ended_workloads_.insert(workload_generation).second) return;
    ended_order_.push_back(workload_generation);
    if (ended_order_.size() <= kEndedWorkloadsKept) return;
    ended_workloads_.erase(ended_order_.front());
    ended_order_.pop_front();
  });
}

EngineTotals TransferLoop::Totals() {
  auto totals = std::make_shared<EngineTotals>();
  auto done = std::make_shared<Answer>(false);
  Post([this, totals, done] {
    for (const auto& [token, transfer] : transfers_) {
      if (transfer->is_terminal()) continue;
      const bool posted =
          transfer->announcing || transfer->operation->progress().first_posted.has_value();
      ++(posted ? totals->running : totals->queued);
    }
    done->Give(TransferStatus{});
  });
  done->WaitUntil(TimePoint::max());
  totals->bytes_inflight = bytes_inflight_.load(std::memory_order_relaxed);
  return *totals;
}

void TransferLoop::Run() {
  while (true) {
    const bool tasks = RunTasks();
    const bool moved = PollTransports();
    const TimePoint now = Clock::now();
    const TimePoint next = FireTimers(now);
    if (tasks || moved || timer_fired_) continue;
    {
      const MutexLock lock(inbox_mutex_);
      if (!inbox_.empty()) continue;
      if (stopping_ && active_.load(std::memory_order_relaxed) == 0) return;
    }
    Sleep(std::min(next, now + kIdleWait));
  }
}

void TransferLoop::Sleep(TimePoint deadline) {
  nanoseconds unattended = nanoseconds::max();
  for (const auto& transport : transports_) {
    unattended = std::min(unattended, transport->Unattended());
  }
  if (unattended < kNapMin || transports_.empty()) return pool_.Wait(deadline);
  pool_.Nap(std::min(deadline, Clock::now() + unattended));
}

bool TransferLoop::RunTasks() {
  {
    const MutexLock lock(inbox_mutex_);
    tasks_.swap(inbox_);
  }
  for (const auto& task : tasks_) task();
  const bool any = !tasks_.empty();
  tasks_.clear();
  return any;
}

bool TransferLoop::PollTransports() {
  bool moved = false;
  for (const auto& transport : transports_) moved |= transport->Poll(&finished_now_);
  for (const uint64_t token : finished_now_) {
    if (const auto found = transfers_.find(token); found != transfers_.end()) {
      Attend(found->second.get());
    }
  }
  finished_now_.clear();
  return moved;
}

TimePoint TransferLoop::FireTimers(TimePoint now) {
  timer_fired_ = false;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    timer_fired_ = true;
    const uint64_t token = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Transfer* transfer = transfers_.at(token).get();
    transfer->timer.reset();
    if (transfer->announcing) {
      Announced(token, Fail(ErrorCode::kDeadlineExceeded, "nothing is known of its delivery"));
    } else if (!transfer->stop_started) {
      StopOne(transfer, TransferState::kExpired,
              Error(ErrorCode::kDeadlineExceeded, "the transfer did not end by its deadline",
                    "deadline_ms states it; progress says how far it came"));
    } else if (!transfer->aborted) {
      log::Warning("a transfer does not become quiet, ending its copy workers",
                   {{"transfer", transfer->admitted.status.id}});
      transfer->aborted = true;
      transfer->operation->Abort();
    }
  }
  ForgetOldTransfers(now);
  return timers_.empty() ? TimePoint::max() : timers_.begin()->first;
}

Status TransferLoop::CheckRoom(const Admitted& admitted) const {
  if (ended_workloads_.contains(admitted.workload_generation)) {
    return Fail(ErrorCode::kCancelled, "workload '" + admitted.status.workload +
                                           "' ended while the transfer was admitted");
  }
  if (closing_) return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
  if (active_.load(std::memory_order_relaxed) >= options_.transfers_max) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(options_.transfers_max) + " transfers are not finished yet",
                "wait for completions before submitting more");
  }
  return {};
}

void TransferLoop::Accept(Admitted* admitted, const std::shared_ptr<Answer>& answer) {
  Key key(admitted->status.workload, admitted->status.id);
  // An id is the workload's as long as it lives: its next process begins anew.
  const Transfer* known = Find(key);
  if (known != nullptr && known->admitted.workload_generation == admitted->workload_generation) {
    if (known->admitted.fingerprint == admitted->fingerprint) return Look(key, answer, false);
    return answer->Give(ConflictOf(key.second));
  }
  if (auto room = CheckRoom(*admitted); !room) return answer->Give(Fail(room.error()));
  const TimePoint now = Clock::now();
  const uint64_t token = next_token_++;
  auto transfer = std::make_unique<Transfer>(std::move(*admitted), token, now);
  Transfer* entry = transfer.get();
  transfers_.emplace(token, std::move(transfer));
  tokens_.insert_or_assign(key, token);
  active_.fetch_add(1, std::memory_order_relaxed);
  bytes_inflight_.fetch_add(entry->admitted.plan->bytes, std::memory_order_relaxed);
  metrics_.PathSelected(static_cast<metrics::Path>(entry->admitted.status.path));
  TrackBusy(*entry, 1, now);
  SetTimer(entry, entry->admitted.deadline);
  entry->operation = entry->admitted.transport->Start(entry->admitted.plan,
                                                      entry->admitted.status.priority, token);
  Look(key, answer, false);
}

void TransferLoop::Look(const Key& key, const std::shared_ptr<Answer>& answer, bool cancel) {
  Transfer* transfer = Find(key);
  if (transfer == nullptr) {
    return answer->Give(Fail(ErrorCode::kNotFound,
                             "workload '" + key.first + "' has no transfer '" + key.second + "'",
                             "finished transfers are kept for a while only; events say the rest"));
  }
  if (cancel && transfer->operation != nullptr) {
    StopOne(transfer, TransferState::kCancelled,
            Error(ErrorCode::kCancelled, "the transfer was cancelled by its caller"));
  }
  if (answer->wait() && !transfer->is_terminal()) {
    transfer->waiting.push_back(answer);
  } else {
    answer->Give(transfer->Snapshot(Clock::now()));
  }
}

void TransferLoop::Attend(Transfer* transfer) {
  if (transfer->operation == nullptr) return;
  if (transfer->operation->finished()) return Finish(transfer);
  // It failed; what is still in flight gets as much time as after a cancel.
  if (transfer->operation->error()) {
    StopOne(transfer, TransferState::kFailed, *transfer->operation->error());
  }
}

void TransferLoop::StopOne(Transfer* transfer, TransferState outcome, Error why) {
  if (transfer->stop_started) return;
  const TimePoint now = Clock::now();
  transfer->stop_started = now;
  transfer->stop_outcome = outcome;
  transfer->stop_reason = std::move(why);
  SetTimer(transfer, now + options_.quiesce_max);
  transfer->operation->Stop();
}

void TransferLoop::SetTimer(Transfer* transfer, TimePoint when) {
  if (transfer->timer) timers_.erase({*transfer->timer, transfer->token});
  transfer->timer = when;
  timers_.insert({when, transfer->token});
}

Transfer* TransferLoop::Find(const Key& key) {
  const auto found = tokens_.find(key);
  return found == tokens_.end() ? nullptr : transfers_.at(found->second).get();
}

}  // namespace gantry::engine
