// Gets tickets from a peer for the tcp transport's connections. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "sidecar/peer/client/peer_client.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::peer {

class StreamOpener final : public transport::TcpStreamOpener {
 public:
  // Does not keep the session alive; calls fail once it is gone.
  explicit StreamOpener(std::weak_ptr<PeerClient> client) : client_(std::move(client)) {}

  Result<Offer> Open(size_t streams, TimePoint deadline) override;

 private:
  const std::weak_ptr<PeerClient> client_;
};

}  // namespace gantry::peer
