// The part of PeerLink for what is said of the peer, and for calls that outlive a session: what
// failed because the connection did is said again over the next one. The peer knows a repetition by
// its id.
#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"
#include "sidecar/peer/client/peer_link.h"

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

// What is known of a path that the peer offers. `streams` and `queue_pairs`: null where there are
// none.
Status WorksNow(wire::Path path, const transport::TcpPeer* streams,
                const transport::RdmaPeer* queue_pairs) {
  const bool by_rdma = path == wire::Path::kRdma || path == wire::Path::kBounce;
  if (path == wire::Path::kTcp && streams != nullptr) return streams->Reached();
  if (by_rdma && queue_pairs != nullptr) return queue_pairs->Reached();
  return {};
}

}  // namespace

engine::PeerInfo PeerLink::Info() const {
  engine::PeerInfo info;
  std::shared_ptr<Session> session;
  {
    const MutexLock lock(mutex_);
    info = info_;
    session = session_;
  }
  for (wire::PathReport& report : info.paths) {
    if (!report.available) continue;
    const Status works =
        session == nullptr
            ? Fail(ErrorCode::kPeerUnavailable, "the peer is not up")
            : WorksNow(report.path, session->streams.get(), session->queue_pairs.get());
    if (!works) {
      report = {report.path, false, works.error().message};
    }
  }
  const auto fastest = std::find_if(info.paths.begin(), info.paths.end(),
                                    [](const auto& report) { return report.available; });
  info.path.reset();
  if (fastest != info.paths.end()) info.path = fastest->path;
  return info;
}

Result<std::shared_ptr<PeerClient>> PeerLink::AwaitClient(TimePoint deadline,
                                                          std::optional<milliseconds> down_max) {
  MutexLock lock(mutex_);
  while (true) {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (closing_) return Fail(ErrorCode::kPeerLost, "peer '" + name_ + "' was removed");
    if (session_ != nullptr && !ended_) return session_->client;
    TimePoint until = deadline;
    if (down_max && session_ == nullptr) until = std::min(until, went_down_ + *down_max);
    if (changed_.WaitUntil(lock, until)) continue;
    const ErrorCode code = until < deadline ? ErrorCode::kPeerLost : ErrorCode::kDeadlineExceeded;
    return Fail(Error(code, NotUp().message, NotUp().hint));
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

Status PeerLink::Repeat(TimePoint deadline, std::optional<milliseconds> down_max,
                        const std::function<Status(PeerClient& client)>& say) {
  while (true) {
    ASSIGN_OR_RETURN(const std::shared_ptr<PeerClient> client, AwaitClient(deadline, down_max));
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

Status PeerLink::Notify(const wire::Notification& notification, TimePoint deadline,
                        std::optional<milliseconds> down_max) {
  return Repeat(deadline, down_max,
                [&](PeerClient& client) { return client.Notify(notification, deadline); });
}

Result<size_t> PeerLink::EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline) {
  size_t said = 0;
  RETURN_IF_ERROR(Repeat(deadline, {}, [&](PeerClient& client) -> Status {
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
