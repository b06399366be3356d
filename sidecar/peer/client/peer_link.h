// One peer: its connection, its buffers here, and the thread that keeps both. The thread connects,
// notices the peer's end, unmaps what was revoked once it is unused, and acknowledges it. All
// unmapping but that of late handles is done by it. Thread-safe.
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

  // `address` as PUT /v1/peers takes it; `parsed` is the same.
  PeerLink(const PeerDirectoryOptions& options, std::string name, std::string address,
           PeerAddress parsed, memory::MemoryMapper& mapper, engine::EventLog& events,
           const PeerDirectory::StopTransfers& stop_transfers,
           std::shared_ptr<registry::FdBudget> fds);
  ~PeerLink();

  // Once, before anything else. kResourceExhausted: there is no thread for it.
  Status Start();

  Result<std::vector<Handle>> Acquire(const std::vector<wire::BufferReference>& references,
                                      engine::RemoteUse use, TimePoint deadline) EXCLUDES(mutex_);
  // As PeerGateway has it.
  void Refresh(const std::vector<uint64_t>& stale, const Error& why, TimePoint deadline)
      EXCLUDES(mutex_);
  // Again and again, over new sessions if need be, until the peer has answered or the deadline, or
  // with kPeerLost when the peer has been down for `down_max`.
  Status Notify(const wire::Notification& notification, TimePoint deadline,
                std::optional<milliseconds> down_max) EXCLUDES(mutex_);
  // Likewise; how many, the first of them, were said.
  Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline)
      EXCLUDES(mutex_);
  // Once: a use that was begun and not heard of ends by itself.
  Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline) EXCLUDES(mutex_);
  // The client of the session that there is, or will be by the deadline; `down_max` as in Notify.
  Result<std::shared_ptr<PeerClient>> AwaitClient(TimePoint deadline,
                                                  std::optional<milliseconds> down_max = {})
      EXCLUDES(mutex_);
  // One of them is that of the session that there is.
  bool ProvesSession(const std::vector<std::string>& proofs) const EXCLUDES(mutex_);
  engine::PeerInfo Info() const EXCLUDES(mutex_);
  // Fails with kShuttingDown alone.
  Status AwaitUp(TimePoint deadline) EXCLUDES(mutex_);
  // Stops the transfers, unmaps, and connects no more. False at the deadline, or after
  // StopWaiting: call again.
  bool Close(TimePoint deadline) EXCLUDES(mutex_);
  bool AwaitClosed(TimePoint deadline) EXCLUDES(mutex_);  // after Close; whatever was stopped
  // Who waits for the peer does so no more, and nobody will. What is mapped stays in use.
  void StopWaiting() EXCLUDES(mutex_);

  // Close was called: it never comes up again.
  bool closing() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return closing_;
  }
  const std::string& address() const { return address_; }
  size_t mapped_allocations() const { return cache_.mapped_allocations(); }

 private:
  // Rings from anywhere, also after the link is gone, and wakes the thread.
  struct Bell {
    Mutex mutex;
    Condition rang;
    bool ringing GUARDED_BY(mutex) = false;

    void Ring() EXCLUDES(mutex);
    void WaitUntil(TimePoint deadline) EXCLUDES(mutex);
  };
  // For events of clients: one may outlive the link in the hands of whoever calls with it.
  struct Gate {
    explicit Gate(PeerLink* of) : link(of) {}
    Mutex mutex;
    PeerLink* link GUARDED_BY(mutex);  // null: it is gone
  };
  // What belongs to one session with the peer.
  struct Session {
    uint64_t number = 0;
    std::shared_ptr<PeerClient> client;  // set once, before the session is published
    // Likewise; null: that path does not lead there.
    std::shared_ptr<transport::TcpPeer> streams;
    std::shared_ptr<transport::RdmaPeer> queue_pairs;
    std::shared_ptr<transport::RemoteStage> stage;
    // The rest belongs to whoever holds the fetch. By (allocation id, writable):
    std::map<std::pair<uint64_t, bool>, std::weak_ptr<const memory::MappedAllocation>> mapped;
    size_t prune_at = 256;
    uint64_t revoked = 0;  // the buffer (its generation) that failed the fetch; 0: none did
  };
  struct Revocation {
    wire::PeerRevocation what;
    uint64_t fetch = 0;  // the one in flight when it came, which may yet map the buffer
    // Then `fetch` is the one in flight when the owner had taken it: the buffer may have been
    // described to that one before, and the owner may have forgotten so.
    bool acknowledged = false;
  };
  class FetchTurn;

  // By the link's thread.
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

  // By callers of Acquire. One attempt; `revoked` as in the session.
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
  // Calls `say` with a client until it has an answer.
  Status Repeat(TimePoint deadline, std::optional<milliseconds> down_max,
                const std::function<Status(PeerClient& client)>& say) EXCLUDES(mutex_);
  // Until something changed, but not long: a session that is over is not noticed at once.
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
  const std::shared_ptr<registry::FdBudget> fds_;  // of all peers
  const std::shared_ptr<Bell> bell_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(this);
  RemoteBufferCache cache_;
  const uint64_t number_;  // random; tells this link from others of the same name

  mutable Mutex mutex_;
  Condition changed_;
  std::shared_ptr<PeerClient> opening_ GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ GUARDED_BY(mutex_);  // null: not up
  uint64_t last_session_ GUARDED_BY(mutex_) = 0;
  std::optional<Error> ended_ GUARDED_BY(mutex_);  // of the current session
  TimePoint last_heard_ GUARDED_BY(mutex_);
  TimePoint went_down_ GUARDED_BY(mutex_){};                // long ago: it was never up
  std::vector<Revocation> revocations_ GUARDED_BY(mutex_);  // of the session; may fail fetches
  bool fetching_ GUARDED_BY(mutex_) = false;                // one at a time: single flight
  uint64_t last_fetch_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;  // nobody waits any more
  bool closing_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  engine::PeerInfo info_ GUARDED_BY(mutex_);

  TimePoint next_attempt_;  // of the thread
  int failures_ = 0;        // of the thread
  std::jthread thread_;     // last: it uses the others
};

}  // namespace gantry::peer
