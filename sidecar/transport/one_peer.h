// Finds the single peer of a plan, for transports that address buffers. Stateless; thread-safe.
#pragma once

#include <memory>
#include <string>

#include "lib/base/result.h"
#include "sidecar/plan/move_plan.h"

namespace gantry::transport {

// Returns `peer_of` of the plan's remote buffers. All must be Targets of this path with one peer.
template <typename Target, typename Peer>
Result<std::shared_ptr<Peer>> OnePeerOf(const MovePlan& plan, wire::Path path,
                                        const std::shared_ptr<Peer>& (Target::*peer_of)() const) {
  std::shared_ptr<Peer> peer;
  for (const RemoteAllocation& remote : plan.remote) {
    const Target* const target = Target::Of(remote);
    if (target == nullptr || (peer != nullptr && peer != (target->*peer_of)())) {
      return Fail(ErrorCode::kInternal,
                  "a plan for " + std::string(NameOf(path)) + " names buffers of one peer");
    }
    peer = (target->*peer_of)();
  }
  if (peer == nullptr) return Fail(ErrorCode::kInternal, "a plan without remote buffers");
  return peer;
}

}  // namespace gantry::transport
