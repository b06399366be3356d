// Who the other end of a connection showed to be, as far as it was checked. Stateless; thread-safe.
#pragma once

#include <grpcpp/security/auth_context.h>

#include <string>
#include <vector>

namespace gantry::peer {

// The names in its certificate; nothing without one.
std::vector<std::string> ShownNames(const grpc::AuthContext& other);

// Equal for two connections with the same sidecar, one in each direction: the names in its
// certificate; over the node's directory, or with no certificates, what all there share.
std::string ShownIdentity(const grpc::AuthContext* other, bool over_tcp);

}  // namespace gantry::peer
