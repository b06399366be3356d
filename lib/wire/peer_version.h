// Which version of the peer protocol two sidecars use: the highest that both speak. A build
// speaks the newest one and the one before it. Stateless; thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/result.h"

namespace gantry::wire {

struct PeerVersions {
  uint32_t min = 1;
  uint32_t max = 1;
};

// Version 1 is the first; with version 3 this becomes {2, 3}.
inline constexpr PeerVersions kPeerVersions = {1, 2};
inline constexpr uint32_t kPeerVersionWithStreams = 2;

// kVersionMismatch says which side has to be upgraded.
Result<uint32_t> ChoosePeerVersion(PeerVersions ours, PeerVersions theirs);

}  // namespace gantry::wire
