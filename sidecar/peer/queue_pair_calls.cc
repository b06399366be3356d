#include "sidecar/peer/queue_pair_calls.h"

#include "lib/wire/rdma_messages.h"

namespace gantry::peer {

Result<wire::QueuePairGrant> CallConnectQueuePairs(
    const CallContext& place, const std::vector<wire::QueuePairRequest>& requests,
    TimePoint deadline) {
  v1::ConnectQueuePairsRequest request;
  request.set_session(place.session);
  wire::ToMessage(requests, &request);
  request.set_some_may_fail(true);
  v1::ConnectQueuePairsReply reply;
  grpc::ClientContext context;
  const CallCanceller::Call call(place.calls, context);
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.ConnectQueuePairs(&context, request, &reply);
  if (!status.ok()) return Fail(FromGrpcStatus(status));
  return wire::FromMessage(reply);
}

Status CallEndQueuePairs(const CallContext& place, uint64_t connection, TimePoint deadline) {
  v1::EndQueuePairsRequest request;
  request.set_session(place.session);
  request.set_connection(connection);
  v1::EndQueuePairsReply reply;
  grpc::ClientContext context;
  const CallCanceller::Call call(place.calls, context);
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.EndQueuePairs(&context, request, &reply);
  if (status.ok()) return {};
  return Fail(FromGrpcStatus(status));
}

}  // namespace gantry::peer
