#include "sidecar/transfer/transfer_loop.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "sidecar/transfer/path_selector.h"
#include "sidecar/transfer/unmoved_operation.h"
#include "sidecar/transfer/unstarted_operation.h"

namespace gantry::engine {
namespace {

// How long the loop may sleep with nothing to do: only a bound, everything wakes it.
constexpr milliseconds kIdleWait{1'000};
// A shorter nap costs more than the wake-ups that it saves.
constexpr microseconds kNapMin{50};
// A job of a GPU takes half of that; one that waits for its turn on a busy GPU takes longer.
constexpr milliseconds kLookAgainMax{1};

// Its lists of blocks are empty: no transport is asked. REQUIRES that it has not ended.
bool MovesNothing(const Transfer& transfer) { return transfer.admitted.plan->descriptors_in == 0; }

}  // namespace

TransferLoop::TransferLoop(const EngineOptions& options, worker::CopyPool& pool,
                           const std::vector<std::unique_ptr<transport::Transport>>& transports,
                           EventLog& events, metrics::Metrics& metrics)
    : options_(options),
      pool_(pool),
      transports_(transports),
      events_(events),
      metrics_(metrics),
      delegated_([&pool] { pool.WakeWaiter(); }) {
  auto thread = StartThread("gantry-engine", [this] { Run(); });
  if (thread) {
    thread_ = *std::move(thread);
  } else {
    started_ = Fail(std::move(thread).error());
  }
}

TransferLoop::~TransferLoop() {
  Close();
  {
    const MutexLock lock(inbox_mutex_);
    stopping_ = true;
  }
  pool_.WakeWaiter();
  if (thread_.joinable()) thread_.join();
}

void TransferLoop::Run() {
  driver_.lock();
  while (true) {
    if (RunOnce()) continue;
    {
      const MutexLock lock(inbox_mutex_);
      if (!inbox_.empty()) continue;
      if (stopping_ && active_.load(std::memory_order_relaxed) == 0) break;
    }
    if (IsToLookAgain()) {
      ::sched_yield();
      continue;
    }
    sleeps_until_ = std::min(next_due_, Clock::now() + kIdleWait);
    Sleep(sleeps_until_);
  }
  driver_.unlock();
}

// Between nodes a sidecar with RDMA devices is expected to use them, without staging. One on which
// they do not work has nothing to fall back from, and a caller who wants another path gets it.
void TransferLoop::CountPath(const Admitted& admitted) const {
  const TransferStatus& status = admitted.status;
  metrics_.PathSelected(static_cast<metrics::Path>(status.path));
  if (admitted.kept_off_by_tcp) {
    metrics_.NodeFallback(static_cast<metrics::Path>(*admitted.kept_off_by_tcp),
                          static_cast<metrics::Path>(status.path));
  }
  if (status.path != wire::Path::kTcp && status.path != wire::Path::kBounce) return;
  for (const auto& transport : transports_) {
    if (transport->path() != wire::Path::kRdma || !transport->Probe()) continue;
    const auto report = std::find_if(status.paths.begin(), status.paths.end(),
                                     [](const auto& one) { return one.path == wire::Path::kRdma; });
    if (report == status.paths.end() || report->available || report->reason == kNotRequired)
      continue;
    metrics_.RdmaFallback(static_cast<metrics::Path>(status.path),
                          admitted.against_rdma.value_or(metrics::PathObstacle::kPeer));
  }
}

// True when anything was there to do.
bool TransferLoop::RunOnce() noexcept {
  looked_ = Clock::now();
  pool_.LookAfresh();
  bool moved = RunTasks();
  const bool carried = PollTransports();
  moved |= carried;
  moved |= PollFences();
  const TimePoint now = Clock::now();
  moved |= FireTimers(now);
  ForgetOldTransfers(now);
  if (carried) last_moved_ = now;
  next_due_ = std::min(timers_.empty() ? TimePoint::max() : timers_.begin()->first, fences_.next());
  return moved;
}

// Counted from the look, not from now: a thread that lost its processor since then would sleep
// while a transport believes that it is looked after.
bool TransferLoop::IsToLookAgain() const {
  return std::any_of(transports_.begin(), transports_.end(),
                     [](const auto& transport) { return transport->DevicesWork(); }) &&
         looked_ - last_moved_ < kLookAgainMax;
}

void TransferLoop::Sleep(TimePoint deadline) {
  nanoseconds unattended = nanoseconds::max();
  for (const auto& transport : transports_) {
    unattended = std::min(unattended, transport->Unattended());
  }
  if (unattended < kNapMin || transports_.empty()) return pool_.Wait(deadline, &driver_);
  pool_.Nap(std::min(deadline, Clock::now() + unattended), &driver_);
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
  moved |= delegated_.Poll(&finished_now_, &accepted_now_);
  for (auto& accepted : accepted_now_) TakePath(std::move(accepted));
  accepted_now_.clear();
  for (const uint64_t token : finished_now_) {
    if (const auto found = transfers_.find(token); found != transfers_.end()) {
      Attend(found->second.get());
    }
  }
  finished_now_.clear();
  return moved;
}

// The peer that executes it says which path it took.
void TransferLoop::TakePath(DelegatedTransfers::Accepted accepted) {
  const auto found = transfers_.find(accepted.token);
  if (found == transfers_.end() || found->second->operation == nullptr) return;
  Transfer& transfer = *found->second;
  const TimePoint now = Clock::now();
  TrackBusy(transfer, -1, now);
  transfer.admitted.status.path = accepted.path;
  transfer.admitted.status.paths = std::move(accepted.paths);
  TrackBusy(transfer, 1, now);
}

bool TransferLoop::PollFences() {
  if (fences_.next() == TimePoint::max()) return false;
  fences_.Poll(Clock::now(), &reached_now_);
  const bool any = !reached_now_.empty();
  for (const uint64_t token : reached_now_) {
    Transfer* const transfer = transfers_.at(token).get();
    Begin(transfer);
    if (MovesNothing(*transfer)) Attend(transfer);
  }
  reached_now_.clear();
  return any;
}

bool TransferLoop::FireTimers(TimePoint now) {
  bool fired = false;
  while (!timers_.empty() && timers_.begin()->first <= now) {
    fired = true;
    const uint64_t token = timers_.begin()->second;
    timers_.erase(timers_.begin());
    Transfer* transfer = transfers_.at(token).get();
    transfer->timer.reset();
    if (transfer->announcing) {
      Announced(token, Fail(ErrorCode::kDeadlineExceeded, "nothing is known of its delivery"));
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
    return answer->Give(Conflict(key.second));
  }
  if (auto room = CheckRoom(*admitted); !room) return answer->Give(Fail(room.error()));
  const TimePoint now = Clock::now();
  const uint64_t token = next_token_++;
  auto transfer = std::make_unique<Transfer>(std::move(*admitted), token, now);
  Transfer* entry = transfer.get();
  transfers_.emplace(token, std::move(transfer));
  const auto& fence = entry->admitted.fence;
  const bool waits = fence && fence->Read() < fence->value;
  if (waits) {
    entry->operation = std::make_unique<UnstartedOperation>(entry->admitted.plan);
    fences_.Add(token, &*fence, now);
  } else {
    Begin(entry);
  }
  tokens_.insert_or_assign(key, token);
  active_.fetch_add(1, std::memory_order_relaxed);
  bytes_inflight_.fetch_add(entry->admitted.plan->bytes, std::memory_order_relaxed);
  CountPath(entry->admitted);
  SetTimer(entry, entry->admitted.deadline);
  Look(key, answer, false);
  if (!waits && MovesNothing(*entry)) Attend(entry);
}

// Of a transfer that waits for nothing more.
void TransferLoop::Begin(Transfer* transfer) {
  Admitted& admitted = transfer->admitted;
  transfer->begun = Clock::now();
  TrackBusy(*transfer, 1, *transfer->begun);
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

void TransferLoop::Look(const Key& key, const std::shared_ptr<Answer>& answer, bool cancel) {
  Transfer* transfer = Find(key);
  if (transfer == nullptr) {
    return answer->Give(Fail(ErrorCode::kNotFound,
                             "workload '" + key.first + "' has no transfer '" + key.second + "'",
                             "finished transfers are kept for a while only; events say the rest"));
  }
  if (cancel && (transfer->operation != nullptr || transfer->is_refreshing())) {
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
  if (transfer->is_refreshing()) return EndRetry(transfer, outcome, std::move(why));
  const TimePoint now = Clock::now();
  transfer->stop_started = now;
  transfer->stop_outcome = outcome;
  transfer->stop_reason = std::move(why);
  SetTimer(transfer, now + options_.quiesce_max);
  transfer->operation->Stop();
  if (!transfer->waits_for_fence()) return;
  fences_.Remove(transfer->token);
  Finish(transfer);
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
