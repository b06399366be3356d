// This sidecar's identity towards peers, and its paths as known before any buffer. Stateless;
// thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"

namespace gantry::peer {

using wire::PeerIdentity;

// The kernel's boot id, equal in every container of a machine.
Result<std::string> ReadNodeId();

// Every path once, fastest first, between `self` and `initiator`. `over_tcp`: the initiator came
// over TCP, not by the node directory. `local` tells which paths work on this machine; a missing
// path is not built in.
std::vector<wire::PathReport> PathsBetween(const PeerIdentity& self, const PeerIdentity& initiator,
                                           bool over_tcp,
                                           const std::vector<wire::PathReport>& local);

}  // namespace gantry::peer
