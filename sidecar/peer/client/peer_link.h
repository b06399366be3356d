// One peer: its connection, its buffers here, and the thread that maintains both. The thread
// connects, detects the peer's end, unmaps revoked buffers once they are unused, and acknowledges
// them. It does all unmapping, except for handles that are released late. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/client/peer_directory.h"
#include "sidecar/peer/client/remote_buffer_cache.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/remote/peer_control.h"
#include "sidecar/remote/peer_gateway.h"
#include "sidecar/transport/bounce/remote_stage.h"
#include "sidecar/transport/rdma/rdma_peer.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::peer {

class PeerLink {
 public:
  using Handle = RemoteBufferCache::Handle;

  // `address` is the text of PUT /v1/peers; `parsed` is its parsed form.
  PeerLink(const PeerDirectoryOptions& options, std::string name, std::string address,
           PeerAddress parsed, memory::MemoryMapper& mapper, engine::EventLog& events,
           const PeerDirectory::StopTransfers& stop_transfers,
           std::shared_ptr<registry::FdBudget> fds);
  ~PeerLink();

  // Call once, before anything else. kResourceExhausted: its thread could not be created.
  Status Start();

  Result<std::vector<Handle>> Acquire(const std::vector<wire::BufferReference>& references,
                                      engine::RemoteUse use, TimePoint deadline) EXCLUDES(mutex_);
  // See PeerGateway::Refresh.
  void Refresh(const std::vector<uint64_t>& stale, const Error& why, TimePoint deadline)
      EXCLUDES(mutex_);
  // Retries, over new sessions if necessary, until the peer has answered or the deadline. kPeerLost
  // when the peer has been down for `down_max`.
  Status Notify(const wire::Notification& notification, TimePoint deadline,
                std::optional<milliseconds> down_max) EXCLUDES(mutex_);
  // Retries like Notify. Returns how many of the first `ends` were delivered.
  Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline)
      EXCLUDES(mutex_);
  // Tries once: a use whose answer was lost ends by itself.
  Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline) EXCLUDES(mutex_);
  // Returns the current session's client; waits for a session until the deadline. `down_max` as in
  // Notify.
  Result<std::shared_ptr<PeerClient>> AwaitClient(TimePoint deadline,
                                                  std::optional<milliseconds> down_max = {})
      EXCLUDES(mutex_);
  // Returns true when one of the proofs is of the current session.
  bool ProvesSession(const std::vector<std::string>& proofs) const EXCLUDES(mutex_);
  engine::PeerInfo Info() const EXCLUDES(mutex_);
  // Waits until the peer is up or the deadline. Fails only with kShuttingDown.
  Status AwaitUp(TimePoint deadline) EXCLUDES(mutex_);
  // Stops the transfers, unmaps, and connects no more. False at the deadline or after StopWaiting:
  // call again.
  bool Close(TimePoint deadline) EXCLUDES(mutex_);
  bool AwaitClosed(TimePoint deadline) EXCLUDES(mutex_);  // call after Close; ignores StopWaiting
  // Ends all current and future waits for the peer. Mappings stay in use.
  void StopWaiting() EXCLUDES(mutex_);

  // True after Close: the peer never comes up again.
  bool closing() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return closing_;
  }
  const std::string& address() const { return address_; }
  size_t mapped_allocations() const { return cache_.mapped_allocations(); }

 private:
  // Wakes the link's thread. It may be used after the link is destroyed.
  struct Bell {
    Mutex mutex;
    Condition rang;
    bool ringing GUARDED_BY(mutex) = false;

    void Ring() EXCLUDES(mutex);
    void WaitUntil(TimePoint deadline) EXCLUDES(mutex);
  };
  // Passes clients' events to the link. A client may outlive the link while a caller uses it.
  struct Gate {
    explicit Gate(PeerLink* of) : link(of) {}
    Mutex mutex;
    PeerLink* link GUARDED_BY(mutex);  // null: the link is destroyed
  };
  // The state of one session with the peer.
  struct Session {
    uint64_t number = 0;
    std::shared_ptr<PeerClient> client;  // set once, before the session is published
    // Set with client; null: the path does not lead to the peer.
    std::shared_ptr<transport::TcpPeer> streams;
    std::shared_ptr<transport::RdmaPeer> queue_pairs;
    std::shared_ptr<transport::RemoteStage> stage;
    // The rest is used by the thread that holds the fetch turn. Keys are (allocation id, writable).
    std::map<std::pair<uint64_t, bool>, std::weak_ptr<const memory::MappedAllocation>> mapped;
    size_t prune_at = 256;
    uint64_t revoked = 0;  // generation of the buffer whose revocation failed the fetch; 0: none
  };
  struct Revocation {
    wire::PeerRevocation what;
    uint64_t fetch = 0;  // the fetch in flight when it arrived, which may still map the buffer
    // True once the owner has accepted the acknowledgement; `fetch` is then the one in flight at
    // that time. The owner may have described the buffer to that fetch before, and have forgotten
    // it.
    bool acknowledged = false;
  };
  class FetchTurn;

  // These run on the link's thread.
  void Run(const std::stop_token& stop);
  void TryOpen();
  void EndSession(const Error& why) EXCLUDES(mutex_);
  std::vector<wire::PathReport> PathsHere(std::vector<wire::PathReport> offered) const;
  void OpenPaths(Session* session) const EXCLUDES(mutex_);
  TimePoint Settle();
  void AcknowledgeUnmapped() EXCLUDES(mutex_);
  std::optional<Error> ReasonToEnd() EXCLUDES(mutex_);
  void SetState(engine::PeerState state) REQUIRES(mutex_);

  void OnEvent(uint64_t session, const PeerEvent& event) EXCLUDES(mutex_);

  // Called by Acquire. One attempt; `revoked` as in Session.
  Result<std::vector<Handle>> AcquireOnce(const std::vector<wire::BufferReference>& references,
                                          engine::RemoteUse use, TimePoint deadline,
                                          uint64_t* revoked) EXCLUDES(mutex_);
  bool AwaitAcknowledged(uint64_t generation, TimePoint deadline) EXCLUDES(mutex_);
  Status Fetch(Session& session, const std::vector<wire::BufferReference>& references,
               engine::RemoteUse use, TimePoint deadline) EXCLUDES(mutex_);
  Result<std::vector<wire::PeerBuffer>> Describe(
      Session& session, const std::vector<wire::BufferReference>& references, TimePoint deadline)
      EXCLUDES(mutex_);
  Status MapAll(Session& session, const std::vector<wire::PeerBuffer>& buffers,
                std::vector<engine::RemoteBuffer>* imported, TimePoint deadline);
  Result<std::vector<std::shared_ptr<const UniqueFd>>> FetchDescriptors(
      Session& session, const std::vector<wire::WantedAllocation>& wanted, TimePoint deadline);
  Status Publish(Session& session, std::vector<engine::RemoteBuffer> buffers) EXCLUDES(mutex_);
  // Calls `say` with clients until one has answered.
  Status Repeat(TimePoint deadline, std::optional<milliseconds> down_max,
                const std::function<Status(PeerClient& client)>& say) EXCLUDES(mutex_);
  // Waits for a change, but not long, since the end of a session is noticed late.
  void AwaitChange(TimePoint deadline) EXCLUDES(mutex_);
  bool IsRevoked(uint64_t generation) const REQUIRES(mutex_);
  Status CheckNotRevoked(Session& session, uint64_t generation) const REQUIRES(mutex_);
  Error NotUp() const REQUIRES(mutex_);

  const PeerDirectoryOptions& options_;
  const std::string name_;
  const std::string address_;
  const PeerAddress parsed_;
  memory::MemoryMapper& mapper_;
  engine::EventLog& events_;
  const PeerDirectory::StopTransfers& stop_transfers_;
  const std::shared_ptr<registry::FdBudget> fds_;  // shared by all peers
  const std::shared_ptr<Bell> bell_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(this);
  RemoteBufferCache cache_;
  const uint64_t number_;  // random; distinguishes links of the same name

  mutable Mutex mutex_;
  Condition changed_;
  std::shared_ptr<PeerClient> opening_ GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ GUARDED_BY(mutex_);  // null: not up
  uint64_t last_session_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> ended_ GUARDED_BY(mutex_);  // the current session's end
  TimePoint last_heard_ GUARDED_BY(mutex_);
  TimePoint went_down_ GUARDED_BY(mutex_){};                // initially long ago: never up
  std::vector<Revocation> revocations_ GUARDED_BY(mutex_);  // the session's; they may fail fetches
  bool fetching_ GUARDED_BY(mutex_) = false;                // one at a time: single flight
  uint64_t last_fetch_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;  // waits are over
  bool closing_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  engine::PeerInfo info_ GUARDED_BY(mutex_);

  TimePoint next_attempt_;  // used by the link's thread
  int failures_ = 0;        // used by the link's thread
  std::jthread thread_;     // last: it uses the others
};

}  // namespace gantry::peer
