// Where a peer's API is reached: through a socket in the node's directory, or at a host and port.
// A plain value.
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

// "unix:/path/of/peer.sock" or "host:port". Names are looked up when the peer is connected to.
Result<PeerAddress> ParsePeerAddress(std::string_view address);

// Where the sidecar called `name` listens in a node's directory; `node_dir` as it is seen here.
std::string NodeSocket(std::string_view node_dir, std::string_view name);

// "unix:..." where a sidecar called `name` listens there; else empty. `node_dir` may be empty.
std::string AddressOnThisNode(std::string_view node_dir, std::string_view name);

}  // namespace gantry::peer
