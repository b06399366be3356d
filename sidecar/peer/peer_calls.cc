// The part of PeerLink for calls that outlive a session: what failed because the connection did is
// said again over the next one. The peer knows a repetition by its id.
#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"
#include "sidecar/peer/peer_link.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kBetweenAttempts{20};

// The connection failed, or the peer forgot the session: a new one may do better.
bool MayBeRepeated(ErrorCode code) {
  switch (code) {
    case ErrorCode::kPeerLost:
    case ErrorCode::kPeerUnavailable:
    case ErrorCode::kUnauthenticated:
    case ErrorCode::kCancelled:
    case ErrorCode::kDeadlineExceeded:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::shared_ptr<PeerClient>> PeerLink::AwaitClient(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (true) {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (closing_) return Fail(ErrorCode::kPeerLost, "peer '" + name_ + "' was removed");
    if (session_ != nullptr && !ended_) return session_->client;
    if (changed_.WaitUntil(lock, deadline)) continue;
    return Fail(Error(ErrorCode::kDeadlineExceeded, NotUp().message, NotUp().hint));
  }
}

bool PeerLink::ProvesSession(const std::vector<std::string>& proofs) const {
  const MutexLock lock(mutex_);
  if (session_ == nullptr || ended_) return false;
  const std::string own = session_->client->Proof();
  return std::any_of(proofs.begin(), proofs.end(),
                     [&](const std::string& proof) { return EqualSecrets(proof, own); });
}

void PeerLink::AwaitChange(TimePoint deadline) {
  MutexLock lock(mutex_);
  changed_.WaitUntil(lock, deadline);
}

Status PeerLink::Repeat(TimePoint deadline, const std::function<Status(PeerClient& client)>& say) {
  while (true) {
    ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client, AwaitClient(deadline));
    Status said = say(*client);
    if (said) return said;
    Error error = std::move(said).error().WithContext("peer '" + name_ + "'");
    if (!MayBeRepeated(error.code)) return Fail(std::move(error));
    const TimePoint now = Clock::now();
    if (now >= deadline) {
      error.code = ErrorCode::kDeadlineExceeded;
      return Fail(std::move(error));
    }
    AwaitChange(std::min(deadline, now + kBetweenAttempts));
  }
}

Status PeerLink::Notify(const wire::Notification& notification, TimePoint deadline) {
  return Repeat(deadline,
                [&](PeerClient& client) { return client.Notify(notification, deadline); });
}

Result<size_t> PeerLink::EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline) {
  size_t said = 0;
  RETURN_IF_ERROR(Repeat(deadline, [&](PeerClient& client) -> Status {
    auto some = client.EndHoldUses(ends, deadline);
    if (some) {
      said = *some;
      return {};
    }
    Error error = std::move(some).error();
    // An owner that has no thread for the call now may have one later.
    if (error.code == ErrorCode::kResourceExhausted) error.code = ErrorCode::kPeerUnavailable;
    return Fail(std::move(error));
  }));
  return said;
}

Result<uint64_t> PeerLink::UseHold(const wire::HoldUse& use, TimePoint deadline) {
  ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client, AwaitClient(deadline));
  auto used = client->UseHold(use, deadline);
  if (used) return used;
  Error error = std::move(used).error().WithContext("peer '" + name_ + "'");
  // Not the caller is unknown, but the session that was lost meanwhile.
  if (error.code == ErrorCode::kUnauthenticated || error.code == ErrorCode::kCancelled) {
    error.code = ErrorCode::kPeerLost;
  }
  return Fail(std::move(error));
}

}  // namespace gantry::peer
