#include "sidecar/peer/client/queue_pair_calls.h"

#include <utility>

#include "lib/wire/rdma_messages.h"

namespace gantry::peer {

Result<wire::QueuePairGrant> CallConnectQueuePairs(
    const CallContext& place, const std::vector<wire::QueuePairRequest>& requests,
    TimePoint deadline) {
  v1::ConnectQueuePairsRequest request;
  wire::ToMessage(requests, &request);
  request.set_some_may_fail(true);
  ASSIGN_OR_RETURN(const v1::ConnectQueuePairsReply reply,
                   place.Call(&v1::Peer::Stub::ConnectQueuePairs, std::move(request), deadline));
  return wire::FromMessage(reply);
}

Status CallEndQueuePairs(const CallContext& place, uint64_t connection, TimePoint deadline) {
  v1::EndQueuePairsRequest request;
  request.set_connection(connection);
  RETURN_IF_ERROR(place.Call(&v1::Peer::Stub::EndQueuePairs, std::move(request), deadline));
  return {};
}

}  // namespace gantry::peer
