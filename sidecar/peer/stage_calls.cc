#include "sidecar/peer/stage_calls.h"

#include "lib/wire/stage_messages.h"

namespace gantry::peer {

Result<wire::StageGrant> CallOpenStage(const CallContext& place, uint32_t slices,
                                       TimePoint deadline) {
  v1::OpenStageRequest request;
  request.set_session(place.session);
  request.set_slices(slices);
  v1::OpenStageReply reply;
  grpc::ClientContext context;
  const CallCanceller::Call call(place.calls, context);
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.OpenStage(&context, request, &reply);
  if (!status.ok()) return Fail(FromGrpcStatus(status));
  ASSIGN_OR_RETURN(wire::StageGrant grant, wire::FromMessage(reply));
  if (grant.slices.size() <= slices) return grant;
  return Fail(ErrorCode::kMalformedBody, "the peer lends more slices than it was asked for");
}

Status CallCloseStage(const CallContext& place, uint64_t stage, TimePoint deadline) {
  v1::CloseStageRequest request;
  request.set_session(place.session);
  request.set_stage(stage);
  v1::CloseStageReply reply;
  grpc::ClientContext context;
  const CallCanceller::Call call(place.calls, context);
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.CloseStage(&context, request, &reply);
  if (status.ok()) return {};
  return Fail(FromGrpcStatus(status));
}

Result<std::optional<Error>> CallCopyStaged(const CallContext& place, const wire::StagedMove& move,
                                            TimePoint deadline) {
  v1::CopyStagedRequest request;
  request.set_session(place.session);
  wire::ToMessage(move, &request);
  v1::CopyStagedReply reply;
  grpc::ClientContext context;
  const CallCanceller::Call call(place.calls, context);
  place.Prepare(deadline, &context);
  const grpc::Status status = place.stub.CopyStaged(&context, request, &reply);
  if (!status.ok()) return Fail(FromGrpcStatus(status));
  return wire::FromMessage(reply);
}

}  // namespace gantry::peer
