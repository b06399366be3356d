// The verified identity of a connection's other end. Stateless; thread-safe.
#pragma once

#include <grpcpp/security/auth_context.h>

#include <string>
#include <vector>

namespace gantry::peer {

// The names in its certificate; empty without one.
std::vector<std::string> CertificateNames(const grpc::AuthContext& other);

// Equal for connections with the same sidecar in both directions. With certificates it consists of
// their names. In the node directory, or without certificates, all sidecars share one value.
std::string VerifiedIdentity(const grpc::AuthContext* other, bool over_tcp);

}  // namespace gantry::peer
