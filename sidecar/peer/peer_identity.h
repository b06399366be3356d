// Who this sidecar is to others, and what it can say of each path before it knows the buffer.
// Stateless; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"

namespace gantry::peer {

using wire::PeerIdentity;

// The kernel's boot id, the same in every container of a machine.
Result<std::string> ReadNodeId();

// Every path once, fastest first, between `self` and `initiator`. `local` is what each path is good
// for on this machine; a path that it leaves out is not built in.
std::vector<wire::PathReport> PathsBetween(const PeerIdentity& self, const PeerIdentity& initiator,
                                           const std::vector<wire::PathReport>& local);

}  // namespace gantry::peer
