// Accepts connections for a gRPC server, which in this version takes as many as come: here they
// have a bound, and at the bound the one that has been quiet longest gives way to a new one. Each
// takes two descriptors, gRPC's and one that its end is seen by. Thread-safe.
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
#include "lib/base/log_gate.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::rpc {

inline constexpr size_t kFdsPerConnection = 2;

// Names of peers, as ServerContext::peer has them, whose connections stay.
class KeptPeers {
 public:
  // Until what is returned is gone.
  std::shared_ptr<void> Keep(const std::string& peer) EXCLUDES(mutex_);
  bool Has(const std::string& peer) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::multiset<std::string> peers_ GUARDED_BY(mutex_);
};

class BoundedListener {
 public:
  struct Options {
    std::string what;  // is served, for the log
    size_t connections_max = 16;
    // gRPC ends a connection that shows no HTTP/2 for so long, and one without calls.
    milliseconds handshake_max{5'000};
    milliseconds idle_max{5'000};
    // One that is older than twice those two has calls, and stays. For sockets whose ends have no
    // names that Keep could be given.
    bool old_ones_stay = false;
    // For synchronous servers: gRPC 1.51 may wait for ever, with the one thread that takes calls,
    // when it has no other for the first call of a connection that it was given. Such a connection
    // is closed, and its other end tries again.
    bool needs_threads = false;
  };
  // Takes a connection from a listening socket that does not block; errno says why there is none.
  using Accept = std::function<UniqueFd(int listener)>;

  // Listens on all addresses of the host; *at gets the port that was taken.
  static Result<std::unique_ptr<BoundedListener>> Listen(Options options, HostPort* at);
  BoundedListener(Options options, std::vector<UniqueFd> listeners, Accept accept);
  BoundedListener(const BoundedListener&) = delete;
  BoundedListener& operator=(const BoundedListener&) = delete;
  ~BoundedListener();  // Stop()

  // The server that is built has what is accepted here. Once.
  void AddTo(grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // After the server was started. What goes on ends with Stop, and not with the server.
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
  Connections connections_;  // the thread's
  bool paused_ = false;      // likewise: no descriptors left
  log::Gate gave_way_;
  log::Gate refused_;
  log::Gate no_thread_;
  KeptPeers kept_;
  std::jthread thread_;
};

}  // namespace gantry::rpc
