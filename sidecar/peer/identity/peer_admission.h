// Who calls through one door of the peer API, and what it may ask for. Every call passes Admit.
// Thread-safe.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>

#include "lib/base/result.h"
#include "sidecar/metrics/peer_refusal.h"
#include "sidecar/peer/identity/peer_rules.h"
#include "sidecar/peer/identity/peer_security.h"

namespace gantry::peer {

// Told of each connection or call that was turned away.
using CountRefusal = std::function<void(metrics::PeerRefusal why)>;

class PeerAdmission {
 public:
  // The node directory: the kernel said who connects, and the directory is one trust domain.
  PeerAdmission() = default;
  // TCP: certificates were checked when the connection was made; names and tokens are here.
  PeerAdmission(std::shared_ptr<const PeerSecurity> security, CountRefusal count)
      : security_(std::move(security)), count_(std::move(count)) {}

  bool over_tcp() const { return security_ != nullptr; }
  // kUnauthenticated or kPermissionDenied.
  Result<PeerGrant> Admit(const grpc::ServerContext& context) const;

 private:
  Status CheckToken(const grpc::ServerContext& context) const;
  Result<PeerGrant> GrantOf(const grpc::ServerContext& context) const;

  const std::shared_ptr<const PeerSecurity> security_;
  const CountRefusal count_;
};

}  // namespace gantry::peer
