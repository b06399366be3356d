// The initiators that watch this sidecar, which buffers each was told of, and the revocations that
// wait for them. Knows neither gRPC nor sockets. Thread-safe.
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
  struct Revoked {
    std::string buffer_id;
    uint64_t buffer_generation = 0;
    bool suspended = false;
    // Whose it is, for those who are told of a peer that was cut off.
    std::string workload = {};
    uint64_t workload_generation = 0;
    std::string name = {};
    // From now on nothing touches it that has it not mapped; false: that cannot be had. Called by
    // Revoke, for as long as devices take. Null: it cannot be had.
    std::function<bool()> refuse_to_peers = {};
  };
  // This initiator did not let go of the buffer in time: kRefused or kCutOff. Called under the
  // table's lock: must not block or call back.
  using ToldOfLate =
      std::function<void(const wire::PeerIdentity&, const Revoked&, registry::PeerOutcome)>;

  // process_exit_grace: see PeerServerOptions. `told`: may be null.
  InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                 milliseconds process_exit_grace, ToldOfLate told);

  struct Opened {
    std::string session;       // secret
    std::string lease_ticket;  // one use
  };
  // Over TCP a session has no lease connection: nothing is ever mapped, and its data streams are
  // closed before StreamEnded.
  // `shown`: see ShownIdentity.
  Result<Opened> Open(const wire::PeerIdentity& initiator, const std::string& shown, bool over_tcp,
                      InitiatorStream* stream) EXCLUDES(mutex_);
  // Refuses all that the session asks for from now on. Before its data connections are closed.
  void Ending(const std::string& session) EXCLUDES(mutex_);
  // The stream is broken and no longer called. What the initiator mapped is still mapped.
  void StreamEnded(const std::string& session) EXCLUDES(mutex_);

  // The session that this ticket opens the lease connection of.
  Result<std::string> AttachLease(std::string_view lease_ticket) EXCLUDES(mutex_);
  // The initiator closed it, or its process ended: nothing of ours is mapped there any more.
  void LeaseEnded(const std::string& session) EXCLUDES(mutex_);

  // Fails for a session that came through another door than the call.
  Result<wire::PeerIdentity> InitiatorOf(const std::string& session, bool over_tcp) const
      EXCLUDES(mutex_);
  // From now on Revoke reaches the session. To be called before the buffer's state is looked at;
  // the number goes to Keep when the session gets its answer, else to Unmark.
  Result<uint64_t> Mark(const std::string& session, const std::string& buffer_id) EXCLUDES(mutex_);
  void Keep(const std::string& session, const std::string& buffer_id, uint64_t mark,
            wire::Access access) EXCLUDES(mutex_);
  void Unmark(const std::string& session, const std::string& buffer_id, uint64_t mark)
      EXCLUDES(mutex_);
  // Fails unless the stream and the lease connection are open.
  Status CheckMayConnect(const std::string& session) const EXCLUDES(mutex_);
  bool IsMarked(const std::string& session, const std::string& buffer_id) const EXCLUDES(mutex_);
  // What the session was last told that it may do with the buffer; nothing once it acknowledged the
  // buffer's revocation, or is refused it until it does. Fails when the session is over, or ends.
  // For data connections.
  Result<wire::Access> AccessOf(std::string_view session, std::string_view buffer_id) const
      EXCLUDES(mutex_);

  // Parallel to the buffers that were revoked: what became of them at those that knew them.
  using Releases = std::vector<std::vector<registry::PeerRelease>>;
  // Tells all that know one of the buffers and waits for them. An initiator over TCP that has not
  // let go shortly before its deadline is refused the buffer; where that cannot be had it is cut
  // off: its session ends, and with it all that it could touch. Neither is done before it had a
  // moment to let go, which may be after this returned: who is to be refused then is cut off a
  // second later, unless Revoke is called again. Who was told already, and has not been described
  // the buffer since, is not told again: the first grace holds.
  Releases Revoke(const std::vector<Revoked>& buffers, TimePoint deadline) EXCLUDES(mutex_);
  Status Acknowledge(const std::string& session, const std::vector<uint64_t>& revocations)
      EXCLUDES(mutex_);

  // Of those that say to be this life of a sidecar, and showed to be who it showed to be: the
  // secrets of its sessions.
  std::vector<std::string> SessionsOf(uint64_t initiator_generation, const std::string& shown) const
      EXCLUDES(mutex_);
  // Ends them and names them. The initiator may open others at once.
  std::vector<std::string> EndSessionsOf(uint64_t initiator_generation, const std::string& shown)
      EXCLUDES(mutex_);
  // True when nothing of ours is mapped through these any more, false at the deadline.
  bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) EXCLUDES(mutex_);

  // Heartbeats, and forgets sessions that are over.
  void Tick(TimePoint now) EXCLUDES(mutex_);
  // Revoke waits no more, Open is refused.
  void Close() EXCLUDES(mutex_);
  void ShutDown(milliseconds deadline) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  enum class Lease { kAwaited, kOpen, kEnded };
  // What a session may know of a buffer. Marks and revocations are numbered together: one that was
  // made after a revocation is of a buffer that came back, and outlives its acknowledgement.
  struct Marks {
    uint64_t kept = 0;         // the newest that was answered; 0: none
    std::set<uint64_t> asked;  // not answered yet
    uint64_t revoked = 0;      // the newest revocation that was sent
    wire::Access access;       // that was answered last
  };
  // What becomes of an initiator over TCP that has not acknowledged; at shared memory never.
  struct Pending {
    Revoked buffer;     // without refuse_to_peers
    TimePoint refusal;  // then it is refused the buffer,
    bool refusable = false;
    TimePoint cut_off;  // or loses its session
    // Outlives it for those who wait for it.
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
    std::map<std::string, Marks, std::less<>> buffers;  // that it was told of
    std::map<uint64_t, Pending> pending;                // by revocation
    // Ended because its time was over; outlives the session for those who wait for it.
    std::shared_ptr<bool> cut_off = std::make_shared<bool>(false);
  };

  using Sessions = std::map<std::string, Session, std::less<>>;  // by secret

  bool Unmapped(const Session& session, TimePoint now) const REQUIRES(mutex_);
  void Prune(TimePoint now) REQUIRES(mutex_);
  // Returns the one after it.
  Sessions::iterator EraseIfOver(Sessions::iterator it, TimePoint now) REQUIRES(mutex_);
  void CutOff(TimePoint now) REQUIRES(mutex_);
  void Announce(const Session& session, const Revoked& buffer, registry::PeerOutcome outcome) const
      REQUIRES(mutex_);
  Result<Session*> Find(const std::string& session) REQUIRES(mutex_);
  // A revoked buffer that a session was told of.
  struct Told {
    std::string session;
    std::string buffer_id;
    size_t index = 0;         // in what Revoke was asked
    uint64_t revocation = 0;  // 0: not sent, the stream is broken
    std::shared_ptr<const bool> cut_off;
    std::shared_ptr<const bool> refused;  // null: not sent
    registry::PeerRelease release;
  };
  std::vector<Told> TellAll(const std::vector<Revoked>& buffers, TimePoint deadline)
      EXCLUDES(mutex_);
  // False: somebody is to be refused some of the buffers first.
  bool AwaitReleased(std::vector<Told>* told, TimePoint deadline, std::set<size_t>* late)
      EXCLUDES(mutex_);
  // To those that have not let go of it in time.
  void Refuse(const Revoked& buffer) EXCLUDES(mutex_);
  // The revocation that covers all that the session knows of the buffer: one that waits, or a new
  // one. 0: it cannot be told.
  uint64_t Tell(Session* session, const Revoked& buffer, TimePoint now, milliseconds time)
      REQUIRES(mutex_);
  static void EraseIfUnknown(Session* session, const std::string& buffer_id);
  registry::PeerOutcome OutcomeOf(const Told& told, TimePoint now) const REQUIRES(mutex_);
  // True when nobody holds anything any more.
  bool Settle(std::vector<Told>* told, TimePoint now) const REQUIRES(mutex_);
  // When one that holds is refused or cut off, or may be confirmed by nothing but time.
  TimePoint NextChange(const std::vector<Told>& told) const REQUIRES(mutex_);

  const size_t sessions_max_;
  const milliseconds lease_ticket_ttl_;
  const milliseconds process_exit_grace_;
  const ToldOfLate told_of_late_;

  mutable Mutex mutex_;
  Condition changed_;
  Sessions sessions_ GUARDED_BY(mutex_);
  // By lease ticket, until it is used: the session.
  std::map<std::string, std::string, std::less<>> awaited_ GUARDED_BY(mutex_);
  uint64_t last_number_ GUARDED_BY(mutex_) = 0;  // of a mark or a revocation
  bool shutting_down_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
