#include "sidecar/peer/queue_pair_exchanger.h"

namespace gantry::peer {
namespace {

// The peer may have queue pairs that this side knows nothing of, or does not know the session: a
// new one begins with none.
template <typename Outcome>
Outcome Broken(PeerClient& client, Outcome outcome) {
  if (outcome) return outcome;
  switch (outcome.error().code) {
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kMalformedBody:
    case ErrorCode::kCancelled:
    case ErrorCode::kPeerUnavailable:
      client.Break();
      break;
    default:
      break;
  }
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
