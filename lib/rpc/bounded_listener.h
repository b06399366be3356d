// Accepts connections for a gRPC server, whose own listener has no limit in this version. At the
// limit a new connection replaces the one that was quiet longest. Each takes two descriptors:
// gRPC's, and one that detects its end. Thread-safe.
#pragma once

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/host_port.h"
#include "lib/base/log_rate_limiter.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::rpc {

inline constexpr size_t kFdsPerConnection = 2;

// Names of peers, in the form of ServerContext::peer, whose connections are never replaced.
class KeptPeers {
 public:
  // Keeps the peer until the result is destroyed.
  std::shared_ptr<void> Keep(const std::string& peer) EXCLUDES(mutex_);
  bool Has(const std::string& peer) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::multiset<std::string> peers_ GUARDED_BY(mutex_);
};

class BoundedListener {
 public:
  struct Options {
    std::string what;  // the server's purpose, for the log
    size_t connections_max = 16;
    // gRPC ends a connection after this time without HTTP/2, or without calls.
    milliseconds handshake_max{5'000};
    milliseconds idle_max{5'000};
    // True: a connection older than twice the sum of both times has calls, and is not replaced. For
    // sockets whose peers have no name for Keep.
    bool old_ones_stay = false;
    // For synchronous servers. gRPC 1.51 may hang in its only polling thread when it cannot create
    // another. That happens at a connection's first call. Without room for a thread, the connection
    // is closed and the client tries again.
    bool needs_threads = false;
  };
  // Takes a connection from a non-blocking listening socket; invalid: errno says why.
  using Accept = std::function<UniqueFd(int listener)>;

  // Listens on all addresses of the host; *at receives the actual port.
  static Result<std::unique_ptr<BoundedListener>> Listen(Options options, HostPort* at);
  BoundedListener(Options options, std::vector<UniqueFd> listeners, Accept accept);
  BoundedListener(const BoundedListener&) = delete;
  BoundedListener& operator=(const BoundedListener&) = delete;
  ~BoundedListener();  // Stop()

  // Gives the accepted connections to the server that is built. Call once.
  void AddTo(grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // Call after the server has started. Accepting ends with Stop, not with the server.
  Status Start();
  void Stop();

  KeptPeers& kept() { return kept_; }

 private:
  struct Connection {
    UniqueFd seen_by;
    std::string peer;
    TimePoint accepted;
  };
  using Connections = std::map<int, Connection>;  // by seen_by

  void Run(const std::stop_token& stop);
  void TakeAll(int listener);
  void Take(int listener, UniqueFd socket);
  bool HasThreads();
  bool MakeRoom();
  void Forget(int fd);
  bool IsKept(const Connection& connection) const;
  void Watch(bool listeners);

  const Options options_;
  const std::vector<UniqueFd> listeners_;
  const Accept accept_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  UniqueFd epoll_;
  UniqueFd wake_;
  Connections connections_;  // used by the thread
  bool paused_ = false;      // used by the thread: no descriptors left
  log::RateLimiter gave_way_;
  log::RateLimiter refused_;
  log::RateLimiter no_thread_;
  KeptPeers kept_;
  std::jthread thread_;
};

}  // namespace gantry::rpc
