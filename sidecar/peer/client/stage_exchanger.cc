#include "sidecar/peer/client/stage_exchanger.h"

#include <optional>
#include <utility>

#include "sidecar/peer/client/unsure_session.h"

namespace gantry::peer {

Result<wire::StageGrant> StageExchanger::Open(uint32_t slices, TimePoint deadline) {
  return CallInSession(client_,
                       [&](PeerClient& client) { return client.OpenStage(slices, deadline); });
}

Status StageExchanger::Close(uint64_t stage, TimePoint deadline) {
  return CallInSession(client_,
                       [&](PeerClient& client) { return client.CloseStage(stage, deadline); });
}

Status StageExchanger::Copy(const wire::StagedMove& move, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return SessionIsOver();
  auto answered = client->CopyStaged(move, deadline);
  // The peer has no thread for it: nobody looked at it.
  if (!answered && answered.error().code == ErrorCode::kResourceExhausted) {
    return Fail(std::move(answered).error());
  }
  if (!answered) {
    client->Break();
    Error lost = std::move(answered).error().WithContext("whether the peer copies is not known");
    lost.code = ErrorCode::kPeerLost;
    return Fail(std::move(lost));
  }
  if (!*answered) return {};
  Error refusal = **std::move(answered);
  // Of a session that goes on: from here that code says that bytes may still move.
  if (refusal.code == ErrorCode::kPeerLost) refusal.code = ErrorCode::kPeerUnavailable;
  return Fail(std::move(refusal));
}

}  // namespace gantry::peer
