// Asks a peer for tickets when the tcp transport wants connections to it. Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "sidecar/peer/peer_client.h"
#include "sidecar/transport/tcp/tcp_peer.h"

namespace gantry::peer {

class StreamOpener final : public transport::TcpStreamOpener {
 public:
  // Does not keep the session: when it is gone, nothing is opened any more.
  StreamOpener(std::weak_ptr<PeerClient> client, bool encrypts)
      : client_(std::move(client)), encrypts_(encrypts) {}

  Result<Offer> Open(size_t streams, TimePoint deadline) override;

 private:
  const std::weak_ptr<PeerClient> client_;
  const bool encrypts_;  // what this side's connections do
};

}  // namespace gantry::peer
