#include "sidecar/peer/client/queue_pair_exchanger.h"

#include "sidecar/peer/client/unsure_session.h"

namespace gantry::peer {

Result<wire::QueuePairGrant> QueuePairExchanger::Connect(
    const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) {
  return CallInSession(
      client_, [&](PeerClient& client) { return client.ConnectQueuePairs(requests, deadline); });
}

Status QueuePairExchanger::End(uint64_t connection, TimePoint deadline) {
  return CallInSession(
      client_, [&](PeerClient& client) { return client.EndQueuePairs(connection, deadline); });
}

}  // namespace gantry::peer
