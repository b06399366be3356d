// What an owner says of its buffers and paths, as far as a client takes it. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/peer_descriptor.h"
#include "lib/wire/transfer_request.h"

namespace gantry::peer {

// Whatever the peer says: its memory cannot be mapped through a TCP connection, and its version may
// have no data connections.
void KeepPossible(bool over_tcp, uint32_t version, std::vector<wire::PathReport>* paths);

// The buffer, if it is the one that was asked for.
Result<wire::PeerBuffer> TakeDescription(const v1::Description& message,
                                         const wire::BufferReference& reference);

}  // namespace gantry::peer
