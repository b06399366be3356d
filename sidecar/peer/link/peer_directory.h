// The registered peers and their buffers, as far as transfers use them. One thread per peer keeps
// the connection, handles revocations and detects its death. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"
#include "lib/wire/session_times.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/peer/identity/peer_identity.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/registry/fd_budget.h"
#include "sidecar/remote/peer_control.h"
#include "sidecar/remote/peer_gateway.h"

namespace gantry::transport {
class BounceTransport;
class RdmaTransport;
class TcpTransport;
}  // namespace gantry::transport

namespace gantry::peer {

class PeerClient;
class PeerLink;

struct PeerDirectoryOptions {
  PeerIdentity self;
  // Users that may own a peer's socket, beside our own uid and root.
  UidSet uids_allowed;
  std::shared_ptr<PeerSecurity> security;    // for peers over TCP; null: loopback only
  transport::TcpTransport* tcp = nullptr;    // null: no data connections; outlives the directory
  transport::RdmaTransport* rdma = nullptr;  // null: no RDMA; outlives the directory
  std::string why_no_rdma = {};              // set when `rdma` is null
  // The transport through staging memory; null: not available. Outlives the directory.
  transport::BounceTransport* bounce = nullptr;
  size_t peers_max = 1024;
  size_t fds_max = 4096;                         // open descriptors of all peers' memory
  milliseconds call_timeout{5'000};              // per call, within the caller's deadline
  milliseconds silence_max = wire::kSilenceMax;  // a peer that is silent for longer is down
  milliseconds reconnect_min{50};                // doubled after each failure, with jitter
  milliseconds reconnect_max{5'000};
  milliseconds close_timeout{5'000};  // how long the destructor waits for transfers to become quiet
};

class PeerDirectory final : public engine::PeerGateway, public engine::PeerControl {
 public:
  // Stops the transfers that use the buffer and returns at once:
  // TransferEngine::StopTransfersUsing. Called on the peers' threads.
  using StopTransfers =
      std::function<void(std::shared_ptr<const engine::RemoteBuffer> buffer, Error why)>;

  // The mapper and the event log outlive the directory and every handle that it returned.
  PeerDirectory(PeerDirectoryOptions options, memory::MemoryMapper& mapper,
                engine::EventLog& events, StopTransfers stop_transfers);
  ~PeerDirectory() override;  // removes every peer

  // Fails all current and future waits for a peer with kShuttingDown: Put, Remove, and Acquire of
  // uncached buffers. Running transfers continue. Idempotent.
  void Close() EXCLUDES(mutex_);

  // A cached buffer costs one hash lookup and no call.
  Result<std::vector<std::shared_ptr<const engine::RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<wire::BufferReference>& references,
      engine::RemoteUse use, TimePoint deadline) override;

  void Refresh(const std::string& peer, const std::vector<uint64_t>& stale, const Error& why,
               TimePoint deadline) override;

  bool Knows(std::string_view peer) const EXCLUDES(mutex_) { return Find(peer) != nullptr; }
  // Notifies a workload of the peer. Blocks until it has answered, over new sessions if necessary:
  // see PeerCalls.
  Status Notify(const std::string& peer, const wire::Notification& notification, TimePoint deadline,
                std::optional<milliseconds> down_max = {}) EXCLUDES(mutex_);
  // Ends uses of holds at the peer. Blocks like Notify. Returns how many of the first `ends` were
  // delivered.
  Result<size_t> EndHoldUses(const std::string& peer, std::span<const wire::HoldUseEnd> ends,
                             TimePoint deadline) EXCLUDES(mutex_);
  // Starts the use of a hold at the peer and returns its number. One round trip.
  Result<uint64_t> UseHold(const std::string& peer, const wire::HoldUse& use, TimePoint deadline)
      EXCLUDES(mutex_);

  // Returns the peer whose session with this sidecar is proved by one of these: see SessionProof.
  std::optional<std::string> NameByProofs(const std::vector<std::string>& proofs) const
      EXCLUDES(mutex_);
  // Returns the client of the peer's session; waits for a session until the deadline.
  Result<std::shared_ptr<PeerClient>> ClientOf(const std::string& peer, TimePoint deadline) const
      EXCLUDES(mutex_);

  Result<engine::PeerInfo> Put(std::string_view name, std::string_view address,
                               TimePoint deadline) override;
  Result<engine::PeerInfo> Get(std::string_view name) const override;
  std::vector<engine::PeerInfo> List() const override;
  Status Remove(std::string_view name, TimePoint deadline) override;

  size_t mapped_allocations() const;  // over all peers
  size_t fds_held() const { return fds_->held(); }

 private:
  Status CheckOpen() const EXCLUDES(mutex_);
  std::shared_ptr<PeerLink> Find(std::string_view peer) const EXCLUDES(mutex_);

  const PeerDirectoryOptions options_;
  memory::MemoryMapper& mapper_;
  engine::EventLog& events_;
  const StopTransfers stop_transfers_;

  const std::shared_ptr<registry::FdBudget> fds_;

  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<PeerLink>, std::less<>> links_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace gantry::peer
