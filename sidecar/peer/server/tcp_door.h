// The peer API over TCP: a gRPC server of its own, so that what comes through it is never taken for
// a call from the node's directory. Make, Open, Tick and the destructor belong to the owner.
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

// Limits of each of the two gRPC servers, this one and the node directory's.
inline constexpr int kStreamsPerConnectionMax = 64;
inline constexpr int kCallThreadsMax = 64;  // beside one for each session

// Limits the threads of a server's calls. Again now and then, as gRPC does not take it back when it
// fails to make one.
void LimitThreads(size_t sessions_max, grpc::ResourceQuota* quota);

class TcpDoor {
 public:
  struct Options {
    std::string listen;  // "host:port"; port 0 takes any
    std::shared_ptr<PeerSecurity> security;
    size_t sessions_max = 1024;
    size_t connections_max = 1032;
    size_t memory_bytes_max = size_t{256} << 20;  // of gRPC
    // An initiator that does not answer for so long is gone.
    milliseconds silence_max = wire::kSilenceMax;
  };

  // Takes its port, and no calls before Open. `service` outlives the door.
  static Result<std::unique_ptr<TcpDoor>> Make(Options options, CountRefusal count,
                                               v1::Peer::Service& service);
  ~TcpDoor();

  Status Open();                      // once, when the owner can Keep connections
  void Tick();                        // reads the security's files again
  void ShutDown(TimePoint deadline);  // refuses what is new, ends what is left at the deadline
  // The connection of this peer (ServerContext::peer) stays until what is returned is gone; others
  // give way to new ones.
  std::shared_ptr<void> Keep(const std::string& peer);
  std::string address() const;  // "host:port" with the port that was taken
  bool tls() const { return tls_ != nullptr; }

 private:
  explicit TcpDoor(Options options) : options_(std::move(options)) {}

  const Options options_;
  std::unique_ptr<ServerTls> tls_;  // null: without
  HostPort listening_;
  grpc::ResourceQuota quota_{"peer API over TCP"};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<rpc::BoundedListener> listener_;
};

}  // namespace gantry::peer
