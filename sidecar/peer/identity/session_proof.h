// Proves knowledge of a session's secret without revealing it. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::peer {

// Returns the SHA-256 of the session's secret, 32 bytes, for executions (see peer.proto).
std::string SessionProof(std::string_view session);

}  // namespace gantry::peer
