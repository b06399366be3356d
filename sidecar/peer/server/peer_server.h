// The owner's side of the peer API, in the node's directory and over TCP: describes registered
// buffers to other sidecars, hands their descriptors over, and revokes them. Runs from Start until
// it is destroyed, which tells the initiators. Outlives the registry's use of it as a sink.
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

class ExecutionDesk;

struct PeerServerOptions {
  PeerIdentity self;
  std::string node_dir;       // shared by the sidecars of a trust domain; empty: no sockets
  mode_t socket_mode = 0660;  // of both sockets
  UidSet uids_allowed;        // beside this process's own and root
  std::string listen;         // "host:port" of TCP; empty: not over TCP
  std::shared_ptr<PeerSecurity> security;  // null: none, which is refused beyond loopback
  CountRefusal count_refusal = [](metrics::PeerRefusal) {};
  // What each path is good for here now, as TransferEngine::Paths() says. By any thread.
  std::function<std::vector<wire::PathReport>()> paths = [] {
    return std::vector<wire::PathReport>{{wire::Path::kShm, true, ""}};
  };
  // UUIDs of the GPUs that the workers see now. Likewise.
  std::function<std::vector<std::string>()> gpus = [] { return std::vector<std::string>(); };

  StreamSettings streams;  // data connections

  transport::RdmaTarget* rdma = nullptr;  // queue pairs; outlives the server. Null: none
  std::vector<wire::RdmaDeviceAddress> rdma_devices;
  transport::StageTarget* stage =
      nullptr;               // lends staging memory; outlives the server. Null: none,
  std::string why_no_stage;  // and why

  size_t sessions_max = 1024;
  size_t connections_max = 1024;                // of the descriptor socket
  size_t fds_max = 4096;                        // in tickets
  size_t memory_bytes_max = size_t{256} << 20;  // of gRPC
  milliseconds ticket_ttl{5'000};
  milliseconds heartbeat{1'000};
  milliseconds silence_max{5'000};  // of an initiator over TCP, until it is gone
  wire::PeerVersions versions = wire::kPeerVersions;
  // Where notifications of peers go; outlives the server. Null: they are refused.
  engine::NotificationCenter* notifications = nullptr;
  // Told of buffers whose peers were cut off; outlives the server. May be null.
  engine::EventLog* events = nullptr;
  // Whose holds peers may read; likewise.
  engine::HoldTable* holds = nullptr;
  // Where transfers go that peers want executed; likewise. Null: they are refused.
  ExecutionDesk* executions = nullptr;
  milliseconds quiesce_max{2'000};  // of the engine behind them
  // From the end of a lease connection until the initiator counts as unmapped: its copy workers
  // get their parent-death signal just after the kernel closed its sockets.
  milliseconds process_exit_grace{50};
};

struct PeerServerTotals {
  size_t sessions = 0;     // initiators that watch
  size_t connections = 0;  // to the descriptor socket
  size_t tickets = 0;      // not used and not expired
  size_t fds = 0;          // in them
  uint64_t descriptors_sent = 0;
  metrics::TcpConnections data;  // that peers made
};

// Files in node_dir: <name>.peer.sock, <name>.fds.sock, <name>.peer.lock.
class PeerServer : public registry::RevocationSink, public InitiatorSessions {
 public:
  // Fails with kConflict when a living sidecar has this name in this directory.
  static Result<std::unique_ptr<PeerServer>> Start(PeerServerOptions options,
                                                   const registry::BufferRegistry& registry);

  // Revoke() waits for every initiator that was told of a buffer: until it acknowledges, or
  // until its lease connection is closed. A broken stream alone is no confirmation: the process
  // may live and copy. Its mappings are gone when the connection that it closes last is.

  // Ends the waits of Revoke, and those to come, and takes no new peers; those that are here stay
  // until the destructor tells them. Idempotent.
  virtual void Close() = 0;

  virtual PeerServerTotals Totals() const = 0;
  virtual std::string address() const = 0;      // "unix:<node_dir>/<name>.peer.sock"; or empty
  virtual uint16_t streams_port() const = 0;    // 0: no data connections
  virtual std::string tcp_address() const = 0;  // "host:port" with the port taken; or empty
};

}  // namespace gantry::peer
