#include "sidecar/transfer/stale_retry.h"

#include <algorithm>

#include "lib/base/thread.h"
#include "sidecar/transfer/transfer.h"
#include "sidecar/transfer/transfer_fingerprint.h"

namespace gantry::engine {
namespace {

// Each waits for one peer at a time.
constexpr int kThreads = 4;

// A buffer here that was registered anew is other memory, whatever its name; so is a peer's whose
// name was given to another one.
bool IsTheSame(const StaleRetry::Attempt::Used& used, const Admitted& again) {
  const auto is_known = [&](const registry::Buffer::Use& use) {
    const uint64_t generation = use.buffer().description().generation;
    return std::find(used.local.begin(), used.local.end(), generation) != used.local.end();
  };
  const auto is_same = [](const StaleRetry::Attempt::Remote& before,
                          const std::shared_ptr<const RemoteBuffer>& now) {
    return before.peer_registration_id == now->peer_registration_id &&
           before.workload == now->reference.workload && before.buffer == now->reference.buffer;
  };
  return std::all_of(again.uses.begin(), again.uses.end(), is_known) &&
         std::equal(used.remote.begin(), used.remote.end(), again.remotes.begin(),
                    again.remotes.end(), is_same);
}

}  // namespace

StaleRetry::StaleRetry(const TransferAdmission& admission, PeerBuffers& peers)
    : admission_(admission), peers_(peers) {
  const MutexLock lock(mutex_);
  (void)AddThread();  // there may be no other later; without it Post tries again
}

StaleRetry::~StaleRetry() { Close(); }

bool StaleRetry::HelpsAdmission(const Error& refusal, const wire::TransferRequest& request) {
  return refusal.code == ErrorCode::kStaleGeneration && request.view.empty() &&
         !request.remote.empty() && !request.remote.front().peer.empty() &&
         IsOpenToAnother(request) && !refusal.field.starts_with("/local") &&
         !refusal.field.starts_with("/fence");
}

bool StaleRetry::Helps(const Error& refusal, const wire::TransferRequest& request) {
  if (refusal.code == ErrorCode::kPathUnavailable) return true;  // not any more; others may be
  if (!IsOpenToAnother(request)) return false;
  switch (refusal.code) {
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kDraining:
    case ErrorCode::kUnregistered:
    case ErrorCode::kNotFound:
    case ErrorCode::kPeerLost:
    case ErrorCode::kPeerUnavailable:  // its session's end is not noticed yet
      return true;
    default:
      return false;
  }
}

bool StaleRetry::IsOpenToAnother(const wire::TransferRequest& request) {
  if (!request.view.empty()) return true;  // which looks for its buffers again
  return std::all_of(request.remote.begin(), request.remote.end(),
                     [](const auto& reference) { return reference.generation == 0; });
}

StaleRetry::Attempt::Used StaleRetry::UsedBy(const Admitted& admitted) {
  Attempt::Used used;
  for (const auto& use : admitted.uses) {
    used.local.push_back(use.buffer().description().generation);
  }
  for (const auto& remote : admitted.remotes) {
    used.remote.push_back(
        {remote->peer_registration_id, remote->reference.workload, remote->reference.buffer});
  }
  return used;
}

std::optional<StaleRetry::Attempt> StaleRetry::AttemptAfter(const Transfer& transfer) {
  const Admitted& admitted = transfer.admitted;
  // A transfer whose fence was not reached has not begun: nobody said that its bytes are there.
  if (admitted.request == nullptr || transfer.was_retried || !transfer.begun) return std::nullopt;
  const transport::Progress& progress = transfer.operation->progress();
  if (progress.chunks == progress.chunks_total) return std::nullopt;
  const std::optional<Error>& why =
      transfer.stop_reason ? transfer.stop_reason : transfer.operation->error();
  const bool failed = !transfer.stop_reason || transfer.stop_outcome == TransferState::kFailed;
  if (!failed || !why || !Helps(*why, *admitted.request)) return std::nullopt;
  // Admission described its buffers again: no second time. Another path may still help.
  const bool was_described_again = admitted.status.retries > 0;
  if (was_described_again && why->code != ErrorCode::kPathUnavailable) return std::nullopt;
  Attempt attempt;
  attempt.request = admitted.request;
  attempt.peer = admitted.status.peer;
  attempt.refusal = *why;
  attempt.deadline = admitted.deadline;
  attempt.path = admitted.status.path;
  attempt.used = UsedBy(admitted);
  for (const auto& remote : admitted.remotes) {
    attempt.stale.push_back(remote->reference.generation);
  }
  return attempt;
}

Result<Admitted> StaleRetry::AdmitAgain(const Attempt& attempt) {
  std::optional<LostPath> lost;
  if (attempt.refusal.code == ErrorCode::kPathUnavailable) {
    lost = {attempt.path, attempt.refusal.message};
  } else {
    peers_.Refresh(attempt.peer, attempt.stale, attempt.refusal, attempt.deadline);
  }
  const auto left =
      std::chrono::duration_cast<milliseconds>(attempt.deadline - Clock::now()).count();
  if (left <= 0) return Fail(ErrorCode::kDeadlineExceeded, "no time is left for another attempt");
  wire::TransferRequest request = *attempt.request;
  request.deadline_ms = static_cast<uint64_t>(left);
  if (attempt.used) request.fence.reset();
  ASSIGN_OR_RETURN(Admitted again, admission_.Admit(request, std::move(lost)));
  if (attempt.used && !IsTheSame(*attempt.used, again)) {
    return Fail(ErrorCode::kStaleGeneration,
                "its buffers here, or its peer, are not the same any more");
  }
  again.status.retries = 1;
  again.fingerprint = FingerprintOf(*attempt.request);
  return again;
}

Status StaleRetry::AddThread() {
  ASSIGN_OR_RETURN(std::jthread thread, StartThread("gantry-retry", [this] { Run(); }));
  threads_.push_back(std::move(thread));
  return {};
}

void StaleRetry::Post(Attempt attempt, Done done) {
  Error refusal(ErrorCode::kShuttingDown, "the sidecar is stopping");
  {
    const MutexLock lock(mutex_);
    Status added;
    if (!closed_ && threads_.size() < kThreads) added = AddThread();
    if (!closed_ && !threads_.empty()) {
      waiting_.emplace_back(std::move(attempt), std::move(done));
      changed_.NotifyAll();
      return;
    }
    if (!added) refusal = std::move(added).error();
  }
  done(Fail(std::move(refusal)));
}

void StaleRetry::Run() {
  while (true) {
    std::pair<Attempt, Done> next;
    bool closed = false;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !closed_) changed_.Wait(lock);
      if (waiting_.empty()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      closed = closed_;
    }
    next.second(closed ? Fail(ErrorCode::kShuttingDown, "the sidecar is stopping")
                       : AdmitAgain(next.first));
  }
}

void StaleRetry::Close() {
  std::vector<std::jthread> ending;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
    ending.swap(threads_);
  }
  ending.clear();  // joins
}

}  // namespace gantry::engine
