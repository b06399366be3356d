// Messages to peers, besides the moving of bytes. This folder owns the interface; peer/ implements
// it. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/hold.h"
#include "lib/wire/notification.h"

namespace gantry::engine {

// Called once, on a thread of the messenger or within the sending call: must not block. `at_peer`
// is the time from its turn to be sent until the outcome, including waits for a session. Nothing:
// it had no turn.
using DeliveryDone =
    std::function<void(const Status& outcome, std::optional<microseconds> at_peer)>;

class PeerMessenger {
 public:
  virtual ~PeerMessenger() = default;

  // Never blocks. Notifications to one peer are delivered in order. Each is retried over new
  // sessions until the receiver has answered or the deadline.
  virtual void Notify(const std::string& peer, wire::Notification notification, TimePoint deadline,
                      DeliveryDone done) = 0;
  // Like Notify, for a transfer that waits for the outcome. Fails with kPeerLost soon after the
  // peer is known to be down. Does not wait for messages sent by Notify.
  virtual void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                                TimePoint deadline, DeliveryDone done) = 0;

  // Starts the use of a hold at the peer: one round trip on the caller's thread. Pass the number to
  // EndHoldUse, which does not block.
  virtual Result<uint64_t> UseHold(const std::string& peer, const wire::HoldUse& use,
                                   TimePoint deadline) = 0;
  virtual void EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) = 0;
};

}  // namespace gantry::engine
