// Borrows a peer's staging memory, and requests copies there, for the bounce transport.
// Thread-safe.
#pragma once

#include <memory>

#include "sidecar/peer/client/peer_client.h"
#include "sidecar/transport/bounce/stage_exchange.h"

namespace gantry::peer {

class StageExchanger final : public transport::StageExchange {
 public:
  // Does not keep the session alive; calls fail once it is gone.
  explicit StageExchanger(const std::shared_ptr<PeerClient>& client) : client_(client) {}

  Result<wire::StageGrant> Open(uint32_t slices, TimePoint deadline) override;
  Status Close(uint64_t stage, TimePoint deadline) override;
  Status Copy(const wire::StagedMove& move, TimePoint deadline) override;

 private:
  const std::weak_ptr<PeerClient> client_;
};

}  // namespace gantry::peer
