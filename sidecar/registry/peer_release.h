// The outcome of a revocation at one peer that knew the buffer. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/codec/buffer_types.h"

namespace gantry::registry {

// Ordered from harmless to serious.
enum class PeerOutcome {
  kDrained,  // it confirmed that it no longer uses the buffer
  kGone,     // its connection or process ended before: nothing uses the buffer
  kRefused,  // late: refused access to the buffer; its other transfers continue
  kCutOff,   // late: disconnected, so its transfers failed
  kHolding,  // late, and it may still have the buffer mapped
};
std::string_view NameOf(PeerOutcome outcome);  // "drained", "gone", "refused", "cut_off", "holding"

struct PeerRelease {
  std::string peer;
  uint64_t generation = 0;  // the peer's sidecar's
  wire::Path path = wire::Path::kShm;
  PeerOutcome outcome = PeerOutcome::kDrained;
};

// Merges entries by peer, generation and path, keeps the worst outcome, and sorts in this order.
std::vector<PeerRelease> Summary(const std::vector<std::vector<PeerRelease>>& of_buffers);
// Returns the names of peers with this outcome.
std::vector<std::string> PeersThat(PeerOutcome outcome, const std::vector<PeerRelease>& releases);

}  // namespace gantry::registry
