// grpc.health.v1 only, in plaintext on its own address, since a kubelet has no certificate.
// Services: "" and "readiness" serve while the process accepts work, "liveness" while it
// progresses. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::rpc {

struct HealthServerOptions {
  std::string listen;             // "host:port"; port 0 picks one
  std::function<Status()> ready;  // called on any thread; outlives the server
  // Called on any thread; takes no lock. Empty: always alive.
  std::function<Status()> alive = {};
  milliseconds look_again{200};
  size_t connections_max = 16;  // at the limit a new connection replaces the quietest
};

class HealthServer {
 public:
  static Result<std::unique_ptr<HealthServer>> Start(HealthServerOptions options);
  virtual ~HealthServer() = default;

  virtual std::string address() const = 0;  // "host:port" with the actual port
  virtual void Refresh() = 0;               // checks now; any thread
};

}  // namespace gantry::rpc
