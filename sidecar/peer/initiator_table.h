// The initiators that watch this sidecar, which buffers each was told of, and the revocations that
// wait for them. Knows neither gRPC nor sockets. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"

namespace gantry::peer {

// The way to one initiator. Called under the table's lock: must not block or call back.
class InitiatorStream {
 public:
  virtual ~InitiatorStream() = default;
  virtual void PushRevocation(const wire::PeerRevocation& revocation) = 0;
  virtual void PushHeartbeat() = 0;
  virtual void PushShutdown(milliseconds deadline) = 0;  // and ends the stream
  virtual void End() = 0;
};

class InitiatorTable {
 public:
  // process_exit_grace: see PeerServerOptions.
  InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                 milliseconds process_exit_grace);

  struct Opened {
    std::string session;       // secret
    std::string lease_ticket;  // one use
  };
  Result<Opened> Open(const wire::PeerIdentity& initiator, InitiatorStream* stream)
      EXCLUDES(mutex_);
  // The stream is broken and no longer called. What the initiator mapped is still mapped.
  void StreamEnded(const std::string& session) EXCLUDES(mutex_);

  // The session that this ticket opens the lease connection of.
  Result<std::string> AttachLease(std::string_view lease_ticket) EXCLUDES(mutex_);
  // The initiator closed it, or its process ended: nothing of ours is mapped there any more.
  void LeaseEnded(const std::string& session) EXCLUDES(mutex_);

  Result<wire::PeerIdentity> InitiatorOf(const std::string& session) const EXCLUDES(mutex_);
  // From now on Revoke reaches the session. To be called before the buffer's state is looked at.
  // True when it is new.
  Result<bool> Mark(const std::string& session, const std::string& buffer_id) EXCLUDES(mutex_);
  void Unmark(const std::string& session, const std::string& buffer_id) EXCLUDES(mutex_);
  // Fails unless the stream and the lease connection are open.
  Status CheckMayConnect(const std::string& session) const EXCLUDES(mutex_);
  bool IsMarked(const std::string& session, const std::string& buffer_id) const EXCLUDES(mutex_);

  struct Revoked {
    std::string buffer_id;
    uint64_t buffer_generation = 0;
    bool suspended = false;
  };
  // Tells all that know one of the buffers and waits; the names of those that did not confirm in
  // time.
  std::vector<std::string> Revoke(const std::vector<Revoked>& buffers, TimePoint deadline)
      EXCLUDES(mutex_);
  Status Acknowledge(const std::string& session, const std::vector<uint64_t>& revocations)
      EXCLUDES(mutex_);

  // Heartbeats, and forgets sessions that are over.
  void Tick(TimePoint now) EXCLUDES(mutex_);
  void ShutDown(milliseconds deadline) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  enum class Lease { kAwaited, kOpen, kEnded };
  struct Session {
    wire::PeerIdentity initiator;
    InitiatorStream* stream = nullptr;  // null: broken
    Lease lease = Lease::kAwaited;
    std::string lease_ticket;
    TimePoint lease_ticket_expires;
    TimePoint lease_ended;
    std::set<std::string> buffers;            // that it was told of
    std::map<uint64_t, std::string> pending;  // revocation -> buffer id
  };

  bool Unmapped(const Session& session, TimePoint now) const REQUIRES(mutex_);
  void Prune(TimePoint now) REQUIRES(mutex_);
  Result<Session*> Find(const std::string& session) REQUIRES(mutex_);
  // A revoked buffer that a session was told of.
  struct Told {
    std::string session;
    std::string buffer_id;
  };
  void EraseConfirmed(std::vector<Told>* told, TimePoint now) const REQUIRES(mutex_);
  // When one of them may be confirmed by nothing but time.
  TimePoint NextGraceEnd(const std::vector<Told>& told) const REQUIRES(mutex_);

  const size_t sessions_max_;
  const milliseconds lease_ticket_ttl_;
  const milliseconds process_exit_grace_;

  mutable Mutex mutex_;
  Condition changed_;
  std::map<std::string, Session, std::less<>> sessions_ GUARDED_BY(mutex_);
  uint64_t last_revocation_ GUARDED_BY(mutex_) = 0;
  bool shutting_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
