// What became of a buffer that was taken back, at one peer that knew it: so that whoever takes it
// back learns who drained and who was cut off. Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/codec/buffer_types.h"

namespace gantry::registry {

// In the order of how much it should worry the owner.
enum class PeerOutcome {
  kDrained,  // it confirmed that nothing there uses the buffer
  kGone,     // its connection or its process ended before it confirmed: nothing uses the buffer
  kRefused,  // its time was over, so it is refused the buffer: its other transfers go on
  kCutOff,   // its time was over, so it was disconnected: its transfers failed
  kHolding,  // its time was over and it may still have the buffer mapped
};
std::string_view NameOf(PeerOutcome outcome);  // "drained", "gone", "refused", "cut_off", "holding"

struct PeerRelease {
  std::string peer;
  uint64_t generation = 0;  // of the peer's sidecar
  wire::Path path = wire::Path::kShm;
  PeerOutcome outcome = PeerOutcome::kDrained;
};

// One entry for each peer, generation and path, with the worst outcome, in this order.
std::vector<PeerRelease> Summary(const std::vector<std::vector<PeerRelease>>& of_buffers);
// The names of those with this outcome.
std::vector<std::string> PeersThat(PeerOutcome outcome, const std::vector<PeerRelease>& releases);

}  // namespace gantry::registry
