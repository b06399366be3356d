// The half of TransferLoop that its callers run: they hand tasks over and wait for answers.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "lib/base/adaptive_spin.h"
#include "sidecar/transfer/transfer_fingerprint.h"
#include "sidecar/transfer/transfer_loop.h"

namespace gantry::engine {
namespace {

// How long a thread that waits for an answer spins or drives; one for each, they learn apart. The
// limit is the first caller's: a process has one engine.
AdaptiveSpin& SpinOfThisThread(microseconds limit) {
  static thread_local AdaptiveSpin spin(limit);
  return spin;
}
// Long enough for an admission that was under way when its workload ended.
constexpr size_t kEndedWorkloadsKept = 4096;

}  // namespace

tl::unexpected<Error> TransferLoop::Conflict(const std::string& id) {
  return Fail(ErrorCode::kConflict, "transfer '" + id + "' exists with another content",
              "use a new id for a new transfer", "/id");
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

void TransferLoop::Ask(std::function<void()> task, const Answer& answer, TimePoint wait_until) {
  {
    const MutexLock lock(inbox_mutex_);
    inbox_.push_back(std::move(task));
  }
  if (!driver_.TryLock()) return pool_.WakeWaiter();
  pool_.TakeOver();
  const auto drive = [&] {
    RunOnce();
    return answer.is_given();
  };
  drive();
  if (answer.wait()) {
    SpinOfThisThread(options_.answer_spin).Until([&] { return answer.is_given() || drive(); });
    while (!answer.is_given() && IsToLookAgain() && Clock::now() < wait_until) {
      ::sched_yield();
      drive();
    }
  }
  pool_.HandBack(/*wake=*/next_due_ < sleeps_until_ || IsToLookAgain());
  driver_.unlock();
}

Result<TransferStatus> TransferLoop::Await(const std::shared_ptr<Answer>& answer, Key key,
                                           TimePoint wait_until) {
  const TimePoint start = Clock::now();
  const bool is_here =
      SpinOfThisThread(options_.answer_spin).Until([&] { return answer->is_given(); });
  // Without a wait the answer is only as far away as the driver.
  const bool is_given = answer->WaitUntil(answer->wait() ? wait_until : TimePoint::max());
  if (!is_here) SpinOfThisThread(options_.answer_spin).Slept(Clock::now() - start);
  if (is_given) return answer->Take();
  auto look = std::make_shared<Answer>(false);
  Ask(
      [this, key = std::move(key), answer, look] {
        if (Transfer* transfer = Find(key); transfer != nullptr) {
          std::erase(transfer->waiting, answer);
        }
        Look(key, look, false);
      },
      *look);
  look->WaitUntil(TimePoint::max());
  return look->Take();
}

Result<TransferStatus> TransferLoop::Insert(Admitted&& admitted, TimePoint wait_until) {
  Key key(admitted.status.workload, admitted.status.id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  auto shared = std::make_shared<Admitted>(std::move(admitted));
  Ask([this, shared, answer] { Accept(shared.get(), answer); }, *answer, wait_until);
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::Get(std::string_view workload, std::string_view id,
                                         TimePoint wait_until) {
  Key key(workload, id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  Ask([this, key, answer] { Look(key, answer, false); }, *answer, wait_until);
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::GetSame(const wire::TransferRequest& request,
                                             TimePoint wait_until) {
  Key key(request.workload, request.id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  const auto look = [this, key, fingerprint = FingerprintOf(request), answer] {
    const Transfer* known = Find(key);
    if (known != nullptr && known->admitted.fingerprint != fingerprint) {
      return answer->Give(Conflict(key.second));
    }
    Look(key, answer, false);
  };
  Ask(look, *answer, wait_until);
  return Await(answer, std::move(key), wait_until);
}

Result<TransferStatus> TransferLoop::Cancel(std::string_view workload, std::string_view id,
                                            TimePoint wait_until) {
  Key key(workload, id);
  auto answer = std::make_shared<Answer>(wait_until > Clock::now());
  Ask([this, key, answer] { Look(key, answer, true); }, *answer, wait_until);
  return Await(answer, std::move(key), wait_until);
}

std::vector<TransferStatus> TransferLoop::List(std::string_view workload, bool active_only,
                                               size_t limit) {
  auto list = std::make_shared<std::vector<TransferStatus>>();
  auto done = std::make_shared<Answer>(false);
  const auto collect = [this, workload = std::string(workload), active_only, limit, list, done] {
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
  };
  Ask(collect, *done);
  done->WaitUntil(TimePoint::max());
  return std::move(*list);
}

void TransferLoop::Stop(std::function<bool(const Transfer&)> match, TransferState outcome,
                        Error why) {
  Post([this, match = std::move(match), outcome, why = std::move(why)] {
    for (const auto& [token, transfer] : transfers_) {
      if ((transfer->operation != nullptr || transfer->is_refreshing()) && match(*transfer)) {
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
  const auto count = [this, totals, done] {
    for (const auto& [token, transfer] : transfers_) {
      if (transfer->is_terminal()) continue;
      const bool posted = transfer->announcing || transfer->is_refreshing() ||
                          transfer->operation->progress().first_posted.has_value();
      ++(posted ? totals->running : totals->queued);
    }
    done->Give(TransferStatus{});
  };
  Ask(count, *done);
  done->WaitUntil(TimePoint::max());
  totals->bytes_inflight = bytes_inflight_.load(std::memory_order_relaxed);
  return *totals;
}

}  // namespace gantry::engine
