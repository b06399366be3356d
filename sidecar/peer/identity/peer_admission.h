// Authenticates and authorises callers of one listener of the peer API. Every call passes Admit.
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

// Called for each refused connection or call.
using CountRefusal = std::function<void(metrics::PeerRefusal why)>;

class PeerAdmission {
 public:
  // For the node directory: the kernel identifies the caller, and the directory is one trust
  // domain.
  PeerAdmission() = default;
  // For TCP: TLS has verified the certificate; Admit checks names and tokens.
  PeerAdmission(std::shared_ptr<const PeerSecurity> security, CountRefusal count)
      : security_(std::move(security)), count_(std::move(count)) {}

  bool over_tcp() const { return security_ != nullptr; }
  // Fails with kUnauthenticated or kPermissionDenied.
  Result<PeerGrant> Admit(const grpc::ServerContext& context) const;

 private:
  Status CheckToken(const grpc::ServerContext& context) const;
  Result<PeerGrant> GrantOf(const grpc::ServerContext& context) const;

  const std::shared_ptr<const PeerSecurity> security_;
  const CountRefusal count_;
};

}  // namespace gantry::peer
