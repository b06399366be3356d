// grpc.health.v1 alone, in plaintext on an address of its own: a kubelet cannot show a certificate.
// Services: "" and "readiness" serve while the process takes work, "liveness" while it moves.
// Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"

namespace gantry::rpc {

struct HealthServerOptions {
  std::string listen;             // "host:port"; port 0 takes any
  std::function<Status()> ready;  // asked by any thread; outlives the server
  // Likewise, and takes no lock. Empty: it always is.
  std::function<Status()> alive = {};
  milliseconds look_again{200};
  size_t connections_max = 16;  // at the bound the one that is quiet longest gives way to a new one
};

class HealthServer {
 public:
  static Result<std::unique_ptr<HealthServer>> Start(HealthServerOptions options);
  virtual ~HealthServer() = default;

  virtual std::string address() const = 0;  // "host:port" with the port that was taken
  virtual void Refresh() = 0;               // looks now; from any thread
};

}  // namespace gantry::rpc
