// Who this sidecar is to others, and what it can say of each path before it knows the buffer.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"

namespace gantry::peer {

using wire::PeerIdentity;

// The kernel's boot id, the same in every container of a machine.
Result<std::string> ReadNodeId();

// Whether the path maps the peer's memory.
constexpr bool SharesMemory(wire::Path path) {
  return path == wire::Path::kIpc || path == wire::Path::kShm;
}

// Every path once, fastest first, between `self` and an `initiator` that came over TCP or by the
// node directory. `local` is what each path is good for on this machine; a path that it leaves out
// is not built in.
std::vector<wire::PathReport> PathsBetween(const PeerIdentity& self, const PeerIdentity& initiator,
                                           bool over_tcp,
                                           const std::vector<wire::PathReport>& local);

}  // namespace gantry::peer
