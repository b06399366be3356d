// The owner's side of the peer API, in the node directory and over TCP. Describes registered
// buffers to other sidecars, passes their descriptors, and revokes them. Runs from Start until
// destruction, which notifies the initiators. Must outlive its use as the registry's sink.
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/uid_set.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/peer_version.h"
#include "lib/wire/rdma_types.h"
#include "lib/wire/session_times.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/peer/identity/initiator_sessions.h"
#include "sidecar/peer/identity/peer_admission.h"
#include "sidecar/peer/identity/peer_identity.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/peer/server/stream_settings.h"
#include "sidecar/registry/buffer_registry.h"

namespace gantry::transport {
class RdmaTarget;
class StageTarget;
}  // namespace gantry::transport

namespace gantry::peer {

class ExecutionServer;

struct PeerServerOptions {
  PeerIdentity self;
  std::string node_dir;       // shared by the sidecars of one trust domain; empty: no sockets
  mode_t socket_mode = 0660;  // of both sockets
  UidSet uids_allowed;        // besides this process's user and root
  std::string listen;         // "host:port" of TCP; empty: not over TCP
  std::shared_ptr<PeerSecurity> security;  // null: none; then only loopback is allowed
  CountRefusal count_refusal = [](metrics::PeerRefusal) {};
  // Whether each path works here now: TransferEngine::Paths(). Called on any thread.
  std::function<std::vector<wire::PathReport>()> paths = [] {
    return std::vector<wire::PathReport>{{wire::Path::kShm, true, ""}};
  };
  // UUIDs of the GPUs that the workers see now. Called on any thread.
  std::function<std::vector<std::string>()> gpus = [] { return std::vector<std::string>(); };

  StreamSettings streams;  // data connections

  transport::RdmaTarget* rdma = nullptr;  // for queue pairs; outlives the server; null: none
  std::vector<wire::RdmaDeviceAddress> rdma_devices;
  transport::StageTarget* stage =
      nullptr;               // lends staging memory; outlives the server; null: none is lent
  std::string why_no_stage;  // set when `stage` is null

  size_t sessions_max = 1024;
  size_t connections_max = 1024;                // to the descriptor socket
  size_t fds_max = 4096;                        // in unused tickets
  size_t memory_bytes_max = size_t{256} << 20;  // gRPC's memory quota
  milliseconds ticket_ttl{5'000};
  milliseconds heartbeat = wire::kHeartbeat;
  milliseconds silence_max = wire::kSilenceMax;  // then a silent TCP initiator is gone
  wire::PeerVersions versions = wire::kPeerVersions;
  // Receives notifications from peers; outlives the server. Null: they are refused.
  engine::NotificationCenter* notifications = nullptr;
  // Receives events about peers that were cut off; outlives the server. May be null.
  engine::EventLog* events = nullptr;
  // The holds that peers may read; outlives the server. Null: they are refused.
  engine::HoldTable* holds = nullptr;
  // Executes transfers for peers; outlives the server. Null: they are refused.
  ExecutionServer* executions = nullptr;
  milliseconds quiesce_max = wire::kQuiesceMax;  // the engine's, for executions
  // Delay from the end of a lease connection until the initiator counts as unmapped. Its copy
  // workers get their parent-death signal just after the kernel closed its sockets.
  milliseconds process_exit_grace{50};
};

struct PeerServerTotals {
  size_t sessions = 0;     // initiators that watch
  size_t connections = 0;  // to the descriptor socket
  size_t tickets = 0;      // neither used nor expired
  size_t fds = 0;          // in these tickets
  uint64_t descriptors_sent = 0;
  metrics::TcpConnections data;  // connections that peers made
};

// Files in node_dir: <name>.peer.sock, <name>.fds.sock, <name>.peer.lock.
class PeerServer : public registry::RevocationSink, public InitiatorSessions {
 public:
  // Fails with kConflict when a living sidecar uses this name in this directory.
  static Result<std::unique_ptr<PeerServer>> Start(PeerServerOptions options,
                                                   const registry::BufferRegistry& registry);

  // Revoke() waits for every initiator that was told of a buffer, until it acknowledges or its
  // lease connection closes. A broken stream is no confirmation, since the process may still copy.
  // The lease connection is the last that it closes, after its mappings are gone.

  // Ends current and future waits of Revoke and accepts no new peers. Connected peers stay until
  // the destructor notifies them. Idempotent.
  virtual void Close() = 0;

  virtual PeerServerTotals Totals() const = 0;
  virtual std::string address() const = 0;      // "unix:<node_dir>/<name>.peer.sock"; or empty
  virtual uint16_t streams_port() const = 0;    // 0: no data connections
  virtual std::string tcp_address() const = 0;  // "host:port" with the actual port; or empty
};

}  // namespace gantry::peer
