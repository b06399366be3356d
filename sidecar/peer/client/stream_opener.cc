#include "sidecar/peer/client/stream_opener.h"

#include <algorithm>

#include "lib/wire/peer_messages.h"
#include "sidecar/peer/client/unsure_session.h"

namespace gantry::peer {

Result<transport::TcpStreamOpener::Offer> StreamOpener::Open(size_t streams, TimePoint deadline) {
  const std::shared_ptr<PeerClient> client = client_.lock();
  if (client == nullptr) return SessionIsOver();
  const size_t count = std::clamp<size_t>(streams, 1, wire::kPeerStreamsMax);
  auto opened = client->OpenStreams(count, deadline);
  if (!opened) {
    // The peer does not know this session any more, so nothing else works over it either.
    if (opened.error().code == ErrorCode::kStaleGeneration) client->Break();
    return Fail(std::move(opened).error());
  }
  wire::PeerStreams offered = *std::move(opened);
  return Offer{std::move(offered.address.host), offered.address.port, std::move(offered.tickets),
               offered.tls, std::move(offered.certificate_sha256)};
}

}  // namespace gantry::peer
