#include "sidecar/peer/link/revocation_tracker.h"

#include <algorithm>
#include <utility>

namespace gantry::peer {

RevocationTracker::RevocationTracker(std::string peer, RemoteBufferCache& cache)
    : peer_(std::move(peer)), cache_(cache) {}

void RevocationTracker::BeginSession(uint64_t session) {
  const MutexLock lock(mutex_);
  session_ = session;
  revocations_.clear();
  changed_.NotifyAll();
}

void RevocationTracker::EndSession(const Error& why) {
  const MutexLock lock(mutex_);
  session_ = 0;
  revocations_.clear();
  cache_.RetireAll(Clock::now(), why);
  changed_.NotifyAll();
}

void RevocationTracker::Add(uint64_t session, const wire::PeerRevocation& revocation) {
  const MutexLock lock(mutex_);
  if (session != session_) return;
  revocations_.push_back({revocation, fetch_});
  cache_.Retire(revocation.buffer_generation, Clock::now() + milliseconds(revocation.grace_ms),
                Error(ErrorCode::kDraining, "peer '" + peer_ + "' took the buffer back",
                      revocation.suspended ? "it comes back after a resume" : ""));
}

Status RevocationTracker::BeginFetch(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (fetch_ != 0 && !stopping_) {
    if (!changed_.WaitUntil(lock, deadline)) {
      return Fail(ErrorCode::kDeadlineExceeded, "waiting to map buffers of the peer");
    }
  }
  if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
  fetch_ = ++last_fetch_;
  return {};
}

void RevocationTracker::EndFetch() {
  const MutexLock lock(mutex_);
  fetch_ = 0;
  changed_.NotifyAll();
}

bool RevocationTracker::fetching() const {
  const MutexLock lock(mutex_);
  return fetch_ != 0;
}

Status RevocationTracker::Check(uint64_t session, const std::vector<wire::PeerBuffer>& buffers,
                                uint64_t* revoked) const {
  const MutexLock lock(mutex_);
  for (const wire::PeerBuffer& buffer : buffers) {
    RETURN_IF_ERROR(CheckOne(session, buffer.generation, revoked));
  }
  return {};
}

Status RevocationTracker::Publish(uint64_t session, std::vector<engine::RemoteBuffer> buffers,
                                  const std::shared_ptr<const void>& lease, uint64_t* revoked) {
  const MutexLock lock(mutex_);
  for (const engine::RemoteBuffer& buffer : buffers) {
    RETURN_IF_ERROR(CheckOne(session, buffer.reference.generation, revoked));
  }
  for (engine::RemoteBuffer& buffer : buffers) cache_.Add(std::move(buffer), lease);
  return {};
}

std::vector<uint64_t> RevocationTracker::TakeUnmapped() {
  std::vector<uint64_t> ids;
  const MutexLock lock(mutex_);
  const uint64_t fetch_now = fetch_;
  std::erase_if(revocations_, [&](const Revocation& revocation) {
    return revocation.acknowledged && revocation.fetch != fetch_now;
  });
  changed_.NotifyAll();
  for (const Revocation& revocation : revocations_) {
    const bool may_be_mapped = fetch_now != 0 && revocation.fetch == fetch_now;
    if (!revocation.acknowledged && !may_be_mapped &&
        !cache_.Holds(revocation.what.buffer_generation)) {
      ids.push_back(revocation.what.id);
    }
  }
  return ids;
}

void RevocationTracker::SetAcknowledged(const std::vector<uint64_t>& ids) {
  const MutexLock lock(mutex_);
  for (Revocation& revocation : revocations_) {
    if (std::find(ids.begin(), ids.end(), revocation.what.id) == ids.end()) continue;
    revocation.acknowledged = true;
    revocation.fetch = fetch_;
  }
  std::erase_if(revocations_, [](const Revocation& revocation) {
    return revocation.acknowledged && revocation.fetch == 0;
  });
  changed_.NotifyAll();
}

bool RevocationTracker::AwaitAcknowledged(uint64_t generation, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (IsRevoked(generation)) {
    if (stopping_ || !changed_.WaitUntil(lock, deadline)) return false;
  }
  return true;
}

void RevocationTracker::StopWaiting() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

bool RevocationTracker::IsRevoked(uint64_t generation) const {
  return std::any_of(revocations_.begin(), revocations_.end(), [&](const Revocation& revocation) {
    return revocation.what.buffer_generation == generation;
  });
}

Status RevocationTracker::CheckOne(uint64_t session, uint64_t generation, uint64_t* revoked) const {
  if (session != session_) return Fail(ErrorCode::kCancelled, "the session has ended");
  if (!IsRevoked(generation)) return {};
  *revoked = generation;
  return Fail(ErrorCode::kDraining, "peer '" + peer_ + "' is taking the buffer back");
}

}  // namespace gantry::peer
