#include "sidecar/peer/client/stage_calls.h"

#include <utility>

#include "lib/wire/stage_messages.h"

namespace gantry::peer {

Result<wire::StageGrant> CallOpenStage(const CallContext& place, uint32_t slices,
                                       TimePoint deadline) {
  v1::OpenStageRequest request;
  request.set_slices(slices);
  ASSIGN_OR_RETURN(const v1::OpenStageReply reply,
                   place.Call(&v1::Peer::Stub::OpenStage, std::move(request), deadline));
  ASSIGN_OR_RETURN(wire::StageGrant grant, wire::FromMessage(reply));
  if (grant.slices.size() <= slices) return grant;
  return Fail(ErrorCode::kMalformedBody, "the peer lends more slices than it was asked for");
}

Status CallCloseStage(const CallContext& place, uint64_t stage, TimePoint deadline) {
  v1::CloseStageRequest request;
  request.set_stage(stage);
  RETURN_IF_ERROR(place.Call(&v1::Peer::Stub::CloseStage, std::move(request), deadline));
  return {};
}

Result<std::optional<Error>> CallCopyStaged(const CallContext& place, const wire::StagedMove& move,
                                            TimePoint deadline) {
  v1::CopyStagedRequest request;
  wire::ToMessage(move, &request);
  ASSIGN_OR_RETURN(const v1::CopyStagedReply reply,
                   place.Call(&v1::Peer::Stub::CopyStaged, std::move(request), deadline));
  return wire::FromMessage(reply);
}

}  // namespace gantry::peer
