// Checks an owner's descriptions of buffers and paths. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/peer.pb.h"
#include "lib/wire/peer_descriptor.h"
#include "lib/wire/transfer_request.h"

namespace gantry::peer {

// Marks impossible paths as unavailable, whatever the peer reports. Over TCP memory cannot be
// mapped, and old versions have no data connections.
void KeepPossible(bool over_tcp, uint32_t version, std::vector<wire::PathReport>* paths);

// Returns the buffer if it is the requested one.
Result<wire::PeerBuffer> TakeDescription(const v1::Description& message,
                                         const wire::BufferReference& reference);

}  // namespace gantry::peer
