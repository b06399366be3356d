// Shows that one knows a session's secret without telling it. Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace gantry::peer {

// SHA-256 over the secret of a session, for executions (see peer.proto): 32 bytes.
std::string SessionProof(std::string_view session);

}  // namespace gantry::peer
