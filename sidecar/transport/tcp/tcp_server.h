// The target side of the tcp transport. Listens, admits connections with a ticket, and serves reads
// and writes of this sidecar's buffers. Thread-safe. Destroy it before the loops and the buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/result.h"
#include "sidecar/copy/staging_half.h"
#include "sidecar/transport/helper_threads.h"
#include "sidecar/transport/target_buffers.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/channel/socket_channel.h"
#include "sidecar/transport/tcp/target_hub.h"
#include "sidecar/transport/tcp/tcp_options.h"

namespace gantry::transport {

class TcpServer {
 public:
  // `host` is a literal address; `port` 0 picks one. `security` null: plain connections. `staging`
  // null: GPU memory is not served. Everything passed by reference outlives the server.
  static Result<std::unique_ptr<TcpServer>> Create(TcpServerOptions options,
                                                   const std::string& host, uint16_t port,
                                                   IoLoops& loops, HelperThreads& helpers,
                                                   TargetBuffers& buffers,
                                                   ChannelSecurity* security,
                                                   StagingHalf* staging = nullptr);
  // Ends every connection; no byte moves afterwards.
  ~TcpServer();
  TcpServer(const TcpServer&) = delete;
  TcpServer& operator=(const TcpServer&) = delete;

  uint16_t port() const { return port_; }
  // Tickets for the initiators of sessions; the peer API issues them.
  StreamTickets& tickets() { return hub_->tickets; }
  // Voids the session's tickets and closes its connections. Returns true when no byte of theirs can
  // move any more, false at the deadline.
  bool EndSession(const std::string& session, TimePoint deadline) {
    return session.empty() || hub_->End(session, deadline);
  }
  const TargetHub::Totals& totals() const { return hub_->totals; }
  size_t connections() const { return hub_->connections(); }  // with a valid ticket
  size_t unauthenticated() const { return hub_->unauthenticated(); }

 private:
  class Listener;
  TcpServer(std::shared_ptr<TargetHub> hub, IoLoops& loops);

  const std::shared_ptr<TargetHub> hub_;
  IoLoops& loops_;
  std::shared_ptr<Listener> listener_;
  uint16_t port_ = 0;
};

}  // namespace gantry::transport
