// The sessions of initiators that watch this sidecar. Revokes buffers there. Independent of gRPC
// and sockets. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/peer/server/initiator_session.h"
#include "sidecar/peer/server/known_buffers.h"
#include "sidecar/peer/server/revoke_round.h"
#include "sidecar/registry/peer_release.h"

namespace gantry::peer {

class InitiatorTable {
 public:
  using Revoked = RevokedBuffer;
  // Reports that an initiator kept the buffer too long: kRefused or kCutOff. Called under the
  // table's lock: must not block or call back.
  using OnLateInitiator =
      std::function<void(const wire::PeerIdentity&, const Revoked&, registry::PeerOutcome)>;

  // process_exit_grace: see PeerServerOptions. `on_late` may be null.
  InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                 milliseconds process_exit_grace, OnLateInitiator on_late);

  struct Opened {
    std::string session;       // secret
    std::string lease_ticket;  // single use
  };
  // A session over TCP has no lease connection and never maps memory. Its data streams are closed
  // before StreamEnded. `verified_identity`: see VerifiedIdentity.
  Result<Opened> Open(const wire::PeerIdentity& initiator, const std::string& verified_identity,
                      bool over_tcp, InitiatorStream* stream) EXCLUDES(mutex_);
  // Refuses all further calls of the session. Call before closing its data connections.
  void Ending(const std::string& session) EXCLUDES(mutex_);
  // The stream is broken and is not called any more. Mappings of the initiator still exist.
  void StreamEnded(const std::string& session) EXCLUDES(mutex_);

  // Uses up the ticket and returns the session whose lease connection it opens.
  Result<std::string> AttachLease(std::string_view lease_ticket) EXCLUDES(mutex_);
  // The initiator closed the lease connection or died: it has unmapped all our memory.
  void LeaseEnded(const std::string& session) EXCLUDES(mutex_);

  // Fails unless the session was opened over the same transport (`over_tcp`) as the call.
  Result<wire::PeerIdentity> InitiatorOf(const std::string& session, bool over_tcp) const
      EXCLUDES(mutex_);
  // Makes Revoke reach the session. Call it before reading the buffer's state. Pass the number to
  // CommitDescribe when the session gets its answer, else to AbortDescribe.
  Result<uint64_t> BeginDescribe(const std::string& session, const std::string& buffer_id)
      EXCLUDES(mutex_);
  void CommitDescribe(const std::string& session, const std::string& buffer_id,
                      uint64_t description, wire::Access access) EXCLUDES(mutex_);
  void AbortDescribe(const std::string& session, const std::string& buffer_id, uint64_t description)
      EXCLUDES(mutex_);
  // Fails unless the stream and the lease connection are open.
  Status CheckMayConnect(const std::string& session) const EXCLUDES(mutex_);
  bool IsDescribed(const std::string& session, const std::string& buffer_id) const EXCLUDES(mutex_);
  // The access to the buffer that the session was last told. No access once the session has
  // acknowledged the buffer's revocation, or while it is refused. Fails when the session is over or
  // ending. For data connections.
  Result<wire::Access> AccessOf(std::string_view session, std::string_view buffer_id) const
      EXCLUDES(mutex_);

  using Releases = RevokeRound::Releases;
  // Tells every initiator that knows one of the buffers, and waits for their release. A TCP
  // initiator that still holds the buffer shortly before its deadline is refused access to it. If
  // refusal is impossible, the session is cut off, which ends all its access. Every initiator gets
  // a minimum time first, possibly beyond this call's return. In that case it is cut off one second
  // later, unless another Revoke call refuses it. A repeated Revoke sends nothing new: the first
  // deadline stays.
  Releases Revoke(const std::vector<Revoked>& buffers, TimePoint deadline) EXCLUDES(mutex_);
  Status Acknowledge(const std::string& session, const std::vector<uint64_t>& revocations)
      EXCLUDES(mutex_);

  // Returns the session secrets of the initiator with this generation and verified identity.
  std::vector<std::string> SessionsOf(uint64_t initiator_generation,
                                      const std::string& verified_identity) const EXCLUDES(mutex_);
  // Ends these sessions and returns them. The initiator may open new ones at once.
  std::vector<std::string> EndSessionsOf(uint64_t initiator_generation,
                                         const std::string& verified_identity) EXCLUDES(mutex_);
  // True when these sessions map none of our memory any more; false at the deadline.
  bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) EXCLUDES(mutex_);

  // Sends heartbeats, and forgets sessions that are over.
  void Tick(TimePoint now) EXCLUDES(mutex_);
  // Revoke stops waiting and Open is refused.
  void Close() EXCLUDES(mutex_);
  void ShutDown(milliseconds deadline) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  using Sessions = RevokeRound::Sessions;

  // Forgets sessions that are over.
  void Prune(TimePoint now) REQUIRES(mutex_);
  // Cuts off the initiators that kept a buffer too long.
  void CutOffLate(TimePoint now) REQUIRES(mutex_);
  // Fails unless the session is open.
  Result<InitiatorSession*> Find(std::string_view session) REQUIRES(mutex_);
  // Returns the buffers that have to be refused before it is called again; none: the round is over.
  std::set<size_t> AwaitReleased(RevokeRound* round, TimePoint deadline) EXCLUDES(mutex_);
  // Refuses the buffer to the initiators that are late.
  void Refuse(const Revoked& buffer) EXCLUDES(mutex_);

  const size_t sessions_max_;
  const milliseconds lease_ticket_ttl_;
  const milliseconds process_exit_grace_;
  const OnLateInitiator on_late_;

  mutable Mutex mutex_;
  Condition changed_;
  Sessions sessions_ GUARDED_BY(mutex_);
  // Session by unused lease ticket.
  std::map<std::string, std::string, std::less<>> awaited_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;  // the last description's or revocation's
  bool shutting_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
