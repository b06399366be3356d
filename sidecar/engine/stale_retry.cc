#include "sidecar/engine/stale_retry.h"

#include <algorithm>

namespace gantry::engine {
namespace {

// Each waits for one peer at a time.
constexpr int kThreads = 4;

}  // namespace

StaleRetry::StaleRetry(const TransferAdmission& admission, PeerBuffers& peers,
                       metrics::Metrics& metrics)
    : admission_(admission), peers_(peers), metrics_(metrics) {}

StaleRetry::~StaleRetry() { Close(); }

bool StaleRetry::Helps(const Error& refusal) {
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

Result<Admitted> StaleRetry::AdmitAgain(const Attempt& attempt) {
  metrics_.TransferRetried(attempt.refusal.code);
  peers_.Refresh(attempt.peer, attempt.stale, attempt.refusal, attempt.deadline);
  const auto left =
      std::chrono::duration_cast<milliseconds>(attempt.deadline - Clock::now()).count();
  if (left <= 0) return Fail(ErrorCode::kDeadlineExceeded, "no time is left for another attempt");
  wire::TransferRequest request = *attempt.request;
  request.deadline_ms = static_cast<uint64_t>(left);
  if (attempt.has_begun) request.fence.reset();
  ASSIGN_OR_RETURN(Admitted again, admission_.Admit(request));
  again.status.retries = 1;
  again.fingerprint = FingerprintOf(*attempt.request);
  return again;
}

void StaleRetry::Post(Attempt attempt, Done done) {
  {
    const MutexLock lock(mutex_);
    if (!closed_) {
      waiting_.emplace_back(std::move(attempt), std::move(done));
      if (threads_.size() < kThreads) threads_.emplace_back([this] { Run(); });
      changed_.NotifyAll();
      return;
    }
  }
  done(Fail(ErrorCode::kShuttingDown, "the sidecar is stopping"));
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
