// Ends a session after a call whose outcome at the peer is unknown. Stateless; thread-safe.
#pragma once

#include <memory>
#include <type_traits>

#include "lib/base/result.h"
#include "sidecar/peer/client/peer_client.h"

namespace gantry::peer {

// True when the peer may hold state that this side does not know, or may not know the session. A
// new session starts without such state.
inline bool IsUnsure(ErrorCode code) {
  switch (code) {
    case ErrorCode::kStaleGeneration:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kMalformedBody:
    case ErrorCode::kCancelled:
    case ErrorCode::kPeerUnavailable:
      return true;
    default:
      return false;
  }
}

inline tl::unexpected<Error> SessionIsOver() {
  return Fail(ErrorCode::kPeerLost, "the session with the peer is over");
}

// Returns the result of `call(client)`; breaks the session if the outcome is unknown.
template <typename Call>
std::invoke_result_t<Call, PeerClient&> CallInSession(const std::weak_ptr<PeerClient>& session,
                                                      Call call) {
  const std::shared_ptr<PeerClient> client = session.lock();
  if (client == nullptr) return SessionIsOver();
  auto outcome = call(*client);
  if (!outcome && IsUnsure(outcome.error().code)) client->Break();
  return outcome;
}

}  // namespace gantry::peer
