// Asks a peer for its ends of queue pairs, for the rdma transport's connections. Thread-safe.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sidecar/peer/client/peer_client.h"
#include "sidecar/transport/rdma/rdma_connection.h"

namespace gantry::peer {

class QueuePairExchanger final : public transport::QueuePairExchange {
 public:
  // Does not keep the session alive; calls fail once it is gone.
  explicit QueuePairExchanger(const std::shared_ptr<PeerClient>& client)
      : client_(client), devices_(client->facts().rdma_devices) {}

  const std::vector<wire::RdmaDeviceAddress>& peer_devices() const override { return devices_; }
  Result<wire::QueuePairGrant> Connect(const std::vector<wire::QueuePairRequest>& requests,
                                       TimePoint deadline) override;
  Status End(uint64_t connection, TimePoint deadline) override;

 private:
  const std::weak_ptr<PeerClient> client_;
  const std::vector<wire::RdmaDeviceAddress> devices_;
};

}  // namespace gantry::peer
