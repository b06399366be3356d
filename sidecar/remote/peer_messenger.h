// What is said to peers beside the moving of bytes. Owned here, implemented by peer/. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"

namespace gantry::engine {

// Called once, on a thread of the messenger, or within the call that took it: must not block.
// `at_peer`: from its turn to be sent, waits for the peer's session included, until the outcome was
// known; nothing when it had no turn.
using DeliveryDone =
    std::function<void(const Status& outcome, std::optional<microseconds> at_peer)>;

class PeerMessenger {
 public:
  virtual ~PeerMessenger() = default;

  // Never blocks. Notifications to one peer are delivered in the order in which they were given,
  // again and again over new sessions until the receiver has answered, or the deadline.
  virtual void Notify(const std::string& peer, wire::Notification notification, TimePoint deadline,
                      DeliveryDone done) = 0;
  // Likewise for a transfer that waits for the outcome: fails with kPeerLost soon after the peer is
  // known to be down, and does not wait for messages of the other kind.
  virtual void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                                TimePoint deadline, DeliveryDone done) = 0;

  // A transfer is about to read what the peer holds: one round trip, on the caller's thread. The
  // number that is answered goes to EndHoldUse, which does not block.
  virtual Result<uint64_t> UseHold(const std::string& peer, const wire::HoldUse& use,
                                   TimePoint deadline) = 0;
  virtual void EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) = 0;
};

}  // namespace gantry::engine
