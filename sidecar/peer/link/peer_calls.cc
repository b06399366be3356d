#include "sidecar/peer/link/peer_calls.h"

#include <algorithm>
#include <memory>
#include <utility>

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

PeerCalls::PeerCalls(std::string peer, LinkState& state) : peer_(std::move(peer)), state_(state) {}

Status PeerCalls::Repeat(TimePoint deadline, std::optional<milliseconds> down_max,
                         const std::function<Status(PeerClient& client)>& call) {
  while (true) {
    ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client,
                     state_.AwaitClient(deadline, down_max));
    Status called = call(*client);
    if (called) return called;
    Error error = std::move(called).error().WithContext("peer '" + peer_ + "'");
    if (!MayBeRepeated(error.code)) return Fail(std::move(error));
    const TimePoint now = Clock::now();
    if (now >= deadline) {
      error.code = ErrorCode::kDeadlineExceeded;
      return Fail(std::move(error));
    }
    state_.AwaitChange(std::min(deadline, now + kBetweenAttempts));
  }
}

Status PeerCalls::Notify(const wire::Notification& notification, TimePoint deadline,
                         std::optional<milliseconds> down_max) {
  return Repeat(deadline, down_max,
                [&](PeerClient& client) { return client.Notify(notification, deadline); });
}

Result<size_t> PeerCalls::EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline) {
  size_t delivered = 0;
  RETURN_IF_ERROR(Repeat(deadline, {}, [&](PeerClient& client) -> Status {
    auto some = client.EndHoldUses(ends, deadline);
    if (some) {
      delivered = *some;
      return {};
    }
    Error error = std::move(some).error();
    // An owner that has no thread for the call now may have one later.
    if (error.code == ErrorCode::kResourceExhausted) error.code = ErrorCode::kPeerUnavailable;
    return Fail(std::move(error));
  }));
  return delivered;
}

Result<uint64_t> PeerCalls::UseHold(const wire::HoldUse& use, TimePoint deadline) {
  ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client, state_.AwaitClient(deadline, {}));
  auto used = client->UseHold(use, deadline);
  if (used) return used;
  Error error = std::move(used).error().WithContext("peer '" + peer_ + "'");
  // The caller is known. The peer does not know the session, which was lost meanwhile.
  if (error.code == ErrorCode::kUnauthenticated || error.code == ErrorCode::kCancelled) {
    error.code = ErrorCode::kPeerLost;
  }
  return Fail(std::move(error));
}

}  // namespace gantry::peer
