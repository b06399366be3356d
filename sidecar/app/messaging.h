// Builds notifications and holds, for this sidecar and over the peers' outbox. Thread-safe, except
// Meet and Part.
#pragma once

#include <memory>

#include "sidecar/messaging/hold_desk.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/link/peer_outbox.h"
#include "sidecar/peer/server/peer_server.h"

namespace gantry {

class Messaging {
 public:
  // The references outlive it.
  Messaging(const registry::WorkloadTable& workloads, const registry::BufferRegistry& buffers,
            engine::EventLog& events, metrics::Metrics& metrics)
      : notifications_(workloads, events, metrics),
        holds_(workloads, buffers, events, metrics),
        desk_(holds_) {}
  ~Messaging() { Part(); }

  // Connects it to the peers, until Part. REQUIRES at Part that no admission runs.
  void Meet(peer::PeerDirectory& peers) {
    outbox_ = std::make_unique<peer::PeerOutbox>(peers);
    notifications_.SetMessenger(outbox_.get());
    desk_.SetMessenger(outbox_.get());
  }
  void Part() {
    notifications_.SetMessenger(nullptr);
    desk_.SetMessenger(nullptr);
    outbox_.reset();
  }
  // Passes peers' incoming messages to these objects.
  void ServeWith(peer::PeerServerOptions* server) {
    server->notifications = &notifications_;
    server->holds = &holds_;
  }
  void EndWorkload(const registry::WorkloadInfo& workload) {
    notifications_.EndWorkload(workload.name, workload.generation);
    holds_.EndWorkload(workload.name, workload.generation);
  }

  engine::NotificationCenter& notifications() { return notifications_; }
  engine::HoldTable& holds() { return holds_; }
  engine::HoldDesk& desk() { return desk_; }

 private:
  engine::NotificationCenter notifications_;
  engine::HoldTable holds_;
  engine::HoldDesk desk_;
  std::unique_ptr<peer::PeerOutbox> outbox_;
};

}  // namespace gantry
