// The address of a peer's API: a socket in the node directory, or a host and port. A plain value.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/host_port.h"
#include "lib/base/result.h"

namespace gantry::peer {

struct PeerAddress {
  std::string socket_path;  // empty: over TCP
  HostPort tcp;

  bool over_tcp() const { return socket_path.empty(); }
};

// Accepts "unix:/path/of/peer.sock" or "host:port". Names are resolved at connect.
Result<PeerAddress> ParsePeerAddress(std::string_view address);

// Returns the socket path of the sidecar `name`; `node_dir` is its path in this container.
std::string NodeSocket(std::string_view node_dir, std::string_view name);

// Returns "unix:..." if the sidecar `name` has a socket there, else empty. `node_dir` may be empty.
std::string AddressOnThisNode(std::string_view node_dir, std::string_view name);

}  // namespace gantry::peer
