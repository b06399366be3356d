// One peer: its connection, its buffers here, and the thread that maintains both. The thread
// connects, detects the peer's end, unmaps revoked buffers once they are unused, and acknowledges
// them. It does all unmapping, except for handles that are released late. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/link/event_relay.h"
#include "sidecar/peer/link/link_state.h"
#include "sidecar/peer/link/peer_calls.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/link/reconnect_backoff.h"
#include "sidecar/peer/link/remote_buffer_cache.h"
#include "sidecar/peer/link/remote_buffer_fetcher.h"
#include "sidecar/peer/link/revocation_tracker.h"
#include "sidecar/peer/link/wake_signal.h"
#include "sidecar/registry/fd_budget.h"
#include "sidecar/remote/peer_control.h"

namespace gantry::peer {

class PeerLink {
 public:
  struct Peer {
    std::string name;
    std::string address;  // the text of PUT /v1/peers
    PeerAddress parsed;   // the same
  };

  // References are to objects that outlive the link. `fds` counts the descriptors of all peers.
  PeerLink(const PeerDirectoryOptions& options, Peer peer, memory::MemoryMapper& mapper,
           engine::EventLog& events, const PeerDirectory::StopTransfers& stop_transfers,
           const std::shared_ptr<registry::FdBudget>& fds);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // kResourceExhausted: the link has no thread, and must not be used.
  Status started() const { return thread_ ? Status{} : Fail(thread_.error()); }

  RemoteBufferFetcher& buffers() { return fetcher_; }
  PeerCalls& calls() { return calls_; }

  // Returns the current session's client; waits for a session until the deadline.
  Result<std::shared_ptr<PeerClient>> AwaitClient(TimePoint deadline) {
    return state_.AwaitClient(deadline, {});
  }
  // Returns true when one of the proofs is of the current session.
  bool ProvesSession(const std::vector<std::string>& proofs) const;
  engine::PeerInfo Info() const { return state_.Info(); }
  // Waits until the peer is up or the deadline. Fails only with kShuttingDown.
  Status AwaitUp(TimePoint deadline) { return state_.AwaitUp(deadline); }
  // Stops the transfers, unmaps, and connects no more. False at the deadline or after StopWaiting:
  // call again.
  bool Close(TimePoint deadline);
  // Call after Close; ignores StopWaiting.
  bool AwaitClosed(TimePoint deadline) { return state_.AwaitClosed(deadline, false); }
  // Ends all current and future waits for the peer. Mappings stay in use.
  void StopWaiting();

  // True after Close: the peer never comes up again.
  bool closing() const { return state_.closing(); }
  const std::string& address() const { return peer_.address; }
  size_t mapped_allocations() const { return cache_.mapped_allocations(); }

 private:
  // These run on the link's thread.
  void Run(const std::stop_token& stop);
  void TryOpen();
  std::unique_ptr<PeerClient> MakeClient(uint64_t session) const;
  void EndSession(const Error& why);
  // Unmaps what is unused, and stops transfers that use a buffer too long. Returns when to look
  // again.
  TimePoint UnmapUnused();
  void AcknowledgeUnmapped();

  void OnEvent(uint64_t session, const PeerEvent& event);

  const PeerDirectoryOptions& options_;
  const Peer peer_;
  engine::EventLog& events_;
  const PeerDirectory::StopTransfers& stop_transfers_;
  // Wakes the link's thread. Handles that outlive the link use it, too.
  const std::shared_ptr<WakeSignal> wake_;
  RemoteBufferCache cache_;
  RevocationTracker revocations_;
  LinkState state_;
  RemoteBufferFetcher fetcher_;
  PeerCalls calls_;
  ReconnectBackoff backoff_;  // used by the link's thread
  EventRelay relay_;          // a client may outlive the link while a caller uses it
  Result<std::jthread> thread_;
};

}  // namespace gantry::peer
