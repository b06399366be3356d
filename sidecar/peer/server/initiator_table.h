// The initiators that watch this sidecar, the buffers that each was told of, and pending
// revocations. Independent of gRPC and sockets. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/registry/peer_release.h"

namespace gantry::peer {

// Sends to one initiator. Called under the table's lock: must not block or call back.
class InitiatorStream {
 public:
  virtual ~InitiatorStream() = default;
  virtual void PushRevocation(const wire::PeerRevocation& revocation) = 0;
  virtual void PushHeartbeat() = 0;
  virtual void PushShutdown(milliseconds deadline) = 0;  // also ends the stream
  virtual void End() = 0;
};

class InitiatorTable {
 public:
  struct Revoked {
    std::string buffer_id;
    uint64_t buffer_generation = 0;
    bool suspended = false;
    // Owner of the buffer, for events about a peer that was cut off.
    std::string workload = {};
    uint64_t workload_generation = 0;
    std::string name = {};
    // Ends remote access to the buffer except through existing mappings; false: impossible. Revoke
    // calls it; it blocks as long as devices take. Null: impossible.
    std::function<bool()> refuse_to_peers = {};
  };
  // Reports that an initiator kept the buffer too long: kRefused or kCutOff. Called under the
  // table's lock: must not block or call back.
  using ToldOfLate =
      std::function<void(const wire::PeerIdentity&, const Revoked&, registry::PeerOutcome)>;

  // process_exit_grace: see PeerServerOptions. `told` may be null.
  InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                 milliseconds process_exit_grace, ToldOfLate told);

  struct Opened {
    std::string session;       // secret
    std::string lease_ticket;  // single use
  };
  // A session over TCP has no lease connection and never maps memory. Its data streams are closed
  // before StreamEnded. `shown`: see ShownIdentity.
  Result<Opened> Open(const wire::PeerIdentity& initiator, const std::string& shown, bool over_tcp,
                      InitiatorStream* stream) EXCLUDES(mutex_);
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
  // Keep when the session gets its answer, else to Unmark.
  Result<uint64_t> Mark(const std::string& session, const std::string& buffer_id) EXCLUDES(mutex_);
  void Keep(const std::string& session, const std::string& buffer_id, uint64_t mark,
            wire::Access access) EXCLUDES(mutex_);
  void Unmark(const std::string& session, const std::string& buffer_id, uint64_t mark)
      EXCLUDES(mutex_);
  // Fails unless the stream and the lease connection are open.
  Status CheckMayConnect(const std::string& session) const EXCLUDES(mutex_);
  bool IsMarked(const std::string& session, const std::string& buffer_id) const EXCLUDES(mutex_);
  // The access to the buffer that the session was last told. No access once the session has
  // acknowledged the buffer's revocation, or while it is refused. Fails when the session is over or
  // ending. For data connections.
  Result<wire::Access> AccessOf(std::string_view session, std::string_view buffer_id) const
      EXCLUDES(mutex_);

  // Parallel to the revoked buffers: the outcome at each initiator that knew them.
  using Releases = std::vector<std::vector<registry::PeerRelease>>;
  // Tells every initiator that knows one of the buffers, and waits for their release. A TCP
  // initiator that still holds the buffer shortly before its deadline is refused access to it. If
  // refusal is impossible, the session is cut off, which ends all its access. Every initiator gets
  // a minimum time first, possibly beyond this call's return. In that case it is cut off one second
  // later, unless another Revoke call refuses it. A repeated Revoke sends nothing new: the first
  // deadline stays.
  Releases Revoke(const std::vector<Revoked>& buffers, TimePoint deadline) EXCLUDES(mutex_);
  Status Acknowledge(const std::string& session, const std::vector<uint64_t>& revocations)
      EXCLUDES(mutex_);

  // Returns the session secrets of the initiator with this generation and shown identity.
  std::vector<std::string> SessionsOf(uint64_t initiator_generation, const std::string& shown) const
      EXCLUDES(mutex_);
  // Ends these sessions and returns them. The initiator may open new ones at once.
  std::vector<std::string> EndSessionsOf(uint64_t initiator_generation, const std::string& shown)
      EXCLUDES(mutex_);
  // True when these sessions map none of our memory any more; false at the deadline.
  bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) EXCLUDES(mutex_);

  // Sends heartbeats, and forgets sessions that are over.
  void Tick(TimePoint now) EXCLUDES(mutex_);
  // Revoke stops waiting and Open is refused.
  void Close() EXCLUDES(mutex_);
  void ShutDown(milliseconds deadline) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  enum class Lease { kAwaited, kOpen, kEnded };
  // A session's knowledge of one buffer. Marks and revocations share one numbering. A mark with a
  // higher number than a revocation belongs to a buffer that came back. Acknowledging that
  // revocation does not clear it.
  struct Marks {
    uint64_t kept = 0;         // newest mark that was answered; 0: none
    std::set<uint64_t> asked;  // marks not answered yet
    uint64_t revoked = 0;      // newest revocation sent
    wire::Access access;       // as last answered
  };
  // Deadlines of an initiator that has not acknowledged. Shared-memory initiators have none.
  struct Pending {
    Revoked buffer;     // without refuse_to_peers
    TimePoint refusal;  // when access is refused, if `refusable`
    bool refusable = false;
    TimePoint cut_off;  // when the session is cut off otherwise
    // Shared with waiting Revoke calls, which may outlive this entry.
    std::shared_ptr<bool> refused = std::make_shared<bool>(false);
  };
  struct Session {
    wire::PeerIdentity initiator;
    std::string shown;
    bool over_tcp = false;
    bool ending = false;
    InitiatorStream* stream = nullptr;  // null: broken
    Lease lease = Lease::kAwaited;
    std::string lease_ticket;
    TimePoint lease_ticket_expires;
    TimePoint lease_ended;
    std::map<std::string, Marks, std::less<>> buffers;  // that the session was told of
    std::map<uint64_t, Pending> pending;                // by revocation number
    // Cut off after a deadline. Shared with waiting Revoke calls, which may outlive the session.
    std::shared_ptr<bool> cut_off = std::make_shared<bool>(false);
  };

  using Sessions = std::map<std::string, Session, std::less<>>;  // by session secret

  bool Unmapped(const Session& session, TimePoint now) const REQUIRES(mutex_);
  void Prune(TimePoint now) REQUIRES(mutex_);
  // Returns the next iterator.
  Sessions::iterator EraseIfOver(Sessions::iterator it, TimePoint now) REQUIRES(mutex_);
  void CutOff(TimePoint now) REQUIRES(mutex_);
  void Announce(const Session& session, const Revoked& buffer, registry::PeerOutcome outcome) const
      REQUIRES(mutex_);
  Result<Session*> Find(const std::string& session) REQUIRES(mutex_);
  // A revoked buffer and a session that was told of it.
  struct Told {
    std::string session;
    std::string buffer_id;
    size_t index = 0;         // in Revoke's argument
    uint64_t revocation = 0;  // 0: not sent, the stream is broken
    std::shared_ptr<const bool> cut_off;
    std::shared_ptr<const bool> refused;  // null: not sent
    registry::PeerRelease release;
  };
  std::vector<Told> TellAll(const std::vector<Revoked>& buffers, TimePoint deadline)
      EXCLUDES(mutex_);
  // Returns false when `late` buffers have to be refused first.
  bool AwaitReleased(std::vector<Told>* told, TimePoint deadline, std::set<size_t>* late)
      EXCLUDES(mutex_);
  // Refuses the buffer to the initiators that are late.
  void Refuse(const Revoked& buffer) EXCLUDES(mutex_);
  // Returns the number of the revocation that covers all that the session knows of the buffer. It
  // may be a pending one. 0: the session cannot be told.
  uint64_t Tell(Session* session, const Revoked& buffer, TimePoint now, milliseconds time)
      REQUIRES(mutex_);
  static void EraseIfUnknown(Session* session, const std::string& buffer_id);
  registry::PeerOutcome OutcomeOf(const Told& told, TimePoint now) const REQUIRES(mutex_);
  // Updates the outcomes; returns true when no initiator holds a buffer any more.
  bool Settle(std::vector<Told>* told, TimePoint now) const REQUIRES(mutex_);
  // Returns the next time at which an initiator is refused, cut off, or considered unmapped.
  TimePoint NextChange(const std::vector<Told>& told) const REQUIRES(mutex_);

  const size_t sessions_max_;
  const milliseconds lease_ticket_ttl_;
  const milliseconds process_exit_grace_;
  const ToldOfLate told_of_late_;

  mutable Mutex mutex_;
  Condition changed_;
  Sessions sessions_ GUARDED_BY(mutex_);
  // Session by unused lease ticket.
  std::map<std::string, std::string, std::less<>> awaited_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;  // the last mark's or revocation's
  bool shutting_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
