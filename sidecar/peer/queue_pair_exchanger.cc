#include "sidecar/peer/queue_pair_exchanger.h"

#include "sidecar/peer/unsure_session.h"

namespace gantry::peer {
Result<wire::QueuePairGrant> QueuePairExchanger::Connect(
    const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return SessionIsOver();
  return BrokenIfUnsure(*client, client->ConnectQueuePairs(requests, deadline));
}

Status QueuePairExchanger::End(uint64_t connection, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return SessionIsOver();
  return BrokenIfUnsure(*client, client->EndQueuePairs(connection, deadline));
}

}  // namespace gantry::peer
