// What is said to peers beside the moving of bytes. Owned here, implemented by peer/. Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/notification.h"

namespace gantry::engine {

// Called once, on a thread of the messenger, or within the call that took it: must not block.
using DeliveryDone = std::function<void(const Status& outcome)>;

class PeerMessenger {
 public:
  virtual ~PeerMessenger() = default;

  // Never blocks. Notifications to one peer are delivered in the order in which they were given,
  // again and again over new sessions until the receiver has answered, or the deadline.
  virtual void Notify(const std::string& peer, wire::Notification notification, TimePoint deadline,
                      DeliveryDone done) = 0;
};

}  // namespace gantry::engine
