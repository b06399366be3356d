// What ends a session after a call whose outcome at the peer is not known. Stateless; thread-safe.
#pragma once

#include "lib/base/result.h"
#include "sidecar/peer/peer_client.h"

namespace gantry::peer {

// The peer may have made what this side knows nothing of, or does not know the session: a new one
// begins with nothing.
template <typename Outcome>
Outcome BrokenIfUnsure(PeerClient& client, Outcome outcome) {
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

inline tl::unexpected<Error> SessionIsOver() {
  return Fail(ErrorCode::kPeerLost, "the session with the peer is over");
}

}  // namespace gantry::peer
