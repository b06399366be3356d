// The peer API over TCP. Its separate gRPC server keeps its calls apart from those of the node
// directory. The owner calls Make, Open, Tick and the destructor.
#pragma once

#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/host_port.h"
#include "lib/base/result.h"
#include "lib/rpc/bounded_listener.h"
#include "lib/wire/peer.grpc.pb.h"
#include "lib/wire/session_times.h"
#include "sidecar/peer/identity/peer_admission.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/peer/identity/peer_tls.h"

namespace gantry::peer {

// Limits of each of the two gRPC servers: this one and the node directory's.
inline constexpr int kStreamsPerConnectionMax = 64;
inline constexpr int kCallThreadsMax = 64;  // besides one per session

// Limits the threads of a server's calls. Call it repeatedly: gRPC leaks one of them for each
// thread that it cannot create.
void LimitThreads(size_t sessions_max, grpc::ResourceQuota* quota);

class TcpPeerServer {
 public:
  struct Options {
    std::string listen;  // "host:port"; port 0 picks one
    std::shared_ptr<PeerSecurity> security;
    size_t sessions_max = 1024;
    size_t connections_max = 1032;
    size_t memory_bytes_max = size_t{256} << 20;  // gRPC's memory quota
    // Silence after which an initiator is gone.
    milliseconds silence_max = wire::kSilenceMax;
  };

  // Binds the port; accepts no calls before Open. `service` outlives this.
  static Result<std::unique_ptr<TcpPeerServer>> Make(Options options, CountRefusal count,
                                                     v1::Peer::Service& service);
  ~TcpPeerServer();

  Status Open();                      // once, when the owner can call Keep
  void Tick();                        // rereads the security files
  void ShutDown(TimePoint deadline);  // refuses new calls; ends the rest at the deadline
  // Keeps the connection of this peer (ServerContext::peer) while the result lives. Others may be
  // replaced by new ones.
  std::shared_ptr<void> Keep(const std::string& peer);
  std::string address() const;  // "host:port" with the actual port
  bool tls() const { return tls_ != nullptr; }

 private:
  explicit TcpPeerServer(Options options) : options_(std::move(options)) {}

  const Options options_;
  std::unique_ptr<ServerTls> tls_;  // null: no TLS
  HostPort listening_;
  grpc::ResourceQuota quota_{"peer API over TCP"};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<rpc::BoundedListener> listener_;
};

}  // namespace gantry::peer
