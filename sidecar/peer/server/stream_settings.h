// The owner's settings for tcp data connections, and their threads. A plain value; what it points
// to outlives its users.
#pragma once

#include <string>

#include "lib/base/clock.h"
#include "sidecar/transport/tcp/tcp_options.h"

namespace gantry::transport {
class ChannelSecurity;
class HelperThreads;
class IoLoops;
struct StagingHalf;
}  // namespace gantry::transport

namespace gantry::peer {

struct StreamSettings {
  transport::TcpServerOptions tcp;
  std::string listen;      // "address:port" with a literal address; empty: no data connections
  std::string advertised;  // host announced to peers; empty: the one they connected to
  transport::IoLoops* loops = nullptr;
  transport::HelperThreads* helpers = nullptr;
  transport::ChannelSecurity* security = nullptr;  // null: plain
  transport::StagingHalf* staging = nullptr;       // for GPU memory; null: not served
  std::string why_not_staged;                      // set when `staging` is null
  milliseconds ticket_ttl{5'000};
};

}  // namespace gantry::peer
