#include "sidecar/peer/queue_pair_exchanger.h"

namespace gantry::peer {
namespace {

// The peer does not know this session any more, so nothing else works over it either.
template <typename Outcome>
Outcome Broken(PeerClient& client, Outcome outcome) {
  if (!outcome && outcome.error().code == ErrorCode::kStaleGeneration) client.Break();
  return outcome;
}

tl::unexpected<Error> Over() {
  return Fail(ErrorCode::kPeerLost, "the session with the peer is over");
}

}  // namespace

Result<wire::QueuePairGrant> QueuePairExchanger::Connect(
    const std::vector<wire::QueuePairRequest>& requests, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return Over();
  return Broken(*client, client->ConnectQueuePairs(requests, deadline));
}

Status QueuePairExchanger::End(uint64_t connection, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return Over();
  return Broken(*client, client->EndQueuePairs(connection, deadline));
}

}  // namespace gantry::peer
