// Calls that outlive a session with a peer: what failed because the connection did is said again
// over the next one. The peer knows a repetition by its id. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"
#include "sidecar/peer/client/peer_client.h"
#include "sidecar/peer/link/link_state.h"

namespace gantry::peer {

class PeerCalls {
 public:
  // `state` outlives this.
  PeerCalls(std::string peer, LinkState& state);

  // Retries, over new sessions if necessary, until the peer has answered or the deadline. kPeerLost
  // when the peer has been down for `down_max`.
  Status Notify(const wire::Notification& notification, TimePoint deadline,
                std::optional<milliseconds> down_max);
  // Retries like Notify. Returns how many of the first `ends` were delivered.
  Result<size_t> EndHoldUses(std::span<const wire::HoldUseEnd> ends, TimePoint deadline);
  // Tries once: a use whose answer was lost ends by itself.
  Result<uint64_t> UseHold(const wire::HoldUse& use, TimePoint deadline);

 private:
  // Runs `call` with one client after the other until the peer has answered.
  Status Repeat(TimePoint deadline, std::optional<milliseconds> down_max,
                const std::function<Status(PeerClient& client)>& call);

  const std::string peer_;
  LinkState& state_;
};

}  // namespace gantry::peer
