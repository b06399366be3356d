// Passes the events of clients on to an object that the clients may outlive. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "lib/base/mutex.h"
#include "sidecar/peer/client/peer_client.h"

namespace gantry::peer {

class EventRelay {
 public:
  // Runs under the relay's lock: one event at a time.
  using Receiver = std::function<void(uint64_t session, const PeerEvent& event)>;

  explicit EventRelay(Receiver receiver) : target_(std::make_shared<Target>(std::move(receiver))) {}
  EventRelay(const EventRelay&) = delete;
  EventRelay& operator=(const EventRelay&) = delete;
  // Waits for an event that is being received. None is received afterwards.
  ~EventRelay() {
    const MutexLock lock(target_->mutex);
    target_->receiver = nullptr;
  }

  // For the client of this session. It may be called after the relay is destroyed.
  PeerClient::EventHandler HandlerOf(uint64_t session) const {
    return [target = target_, session](const PeerEvent& event) {
      const MutexLock lock(target->mutex);
      if (target->receiver != nullptr) target->receiver(session, event);
    };
  }

 private:
  struct Target {
    explicit Target(Receiver receiver_in) : receiver(std::move(receiver_in)) {}
    Mutex mutex;
    Receiver receiver GUARDED_BY(mutex);  // null: the relay is destroyed
  };

  const std::shared_ptr<Target> target_;
};

}  // namespace gantry::peer
