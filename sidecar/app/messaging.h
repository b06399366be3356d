// Builds notifications and holds, for this sidecar and over the peers' outbox. Thread-safe, except
// ConnectPeers and DisconnectPeers.
#pragma once

#include <memory>

#include "sidecar/messaging/hold_client.h"
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
        hold_client_(holds_) {}
  ~Messaging() { DisconnectPeers(); }

  // Until DisconnectPeers. REQUIRES at DisconnectPeers that no admission runs.
  void ConnectPeers(peer::PeerDirectory& peers) {
    outbox_ = std::make_unique<peer::PeerOutbox>(peers);
    notifications_.SetMessenger(outbox_.get());
    hold_client_.SetMessenger(outbox_.get());
  }
  void DisconnectPeers() {
    notifications_.SetMessenger(nullptr);
    hold_client_.SetMessenger(nullptr);
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
  engine::HoldClient& hold_client() { return hold_client_; }

 private:
  engine::NotificationCenter notifications_;
  engine::HoldTable holds_;
  engine::HoldClient hold_client_;
  std::unique_ptr<peer::PeerOutbox> outbox_;
};

}  // namespace gantry
