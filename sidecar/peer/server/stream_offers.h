// The owner's tcp data connections: listens for them, answers OpenStreams with tickets, and ends
// those of a session. Thread-safe after Listen.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "lib/base/result.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/peer/server/stream_settings.h"
#include "sidecar/transport/tcp/tcp_server.h"

namespace gantry::peer {

class StreamOffers {
 public:
  explicit StreamOffers(StreamSettings settings) : options_(std::move(settings)) {}

  // Call once, before any other call. `buffers` outlives this.
  Status Listen(transport::TargetBuffers& buffers);
  uint16_t port() const { return server_ ? server_->port() : 0; }

  Status Offer(const std::string& session, uint32_t count, wire::proto::OpenStreamsReply* reply);
  // Returns when no byte of the session's connections can move any more.
  void End(const std::string& session);

  // Why they do not serve memory of this kind that is staged; empty: they do.
  std::string WhyNotStaged(wire::MemoryKind kind) const;

  metrics::TcpConnections Totals() const;

 private:
  const StreamSettings options_;
  std::unique_ptr<transport::TcpServer> server_;  // null: no data connections
};

}  // namespace gantry::peer
