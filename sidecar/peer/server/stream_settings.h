// Where the owner takes data connections of the tcp transport, and on whose threads. A plain value;
// what it points to outlives whoever is given it.
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
  std::string listen;  // "address:port" with a literal address; empty: no data connections
  std::string told;    // the host that peers are told; empty: the one that they came to
  transport::IoLoops* loops = nullptr;
  transport::HelperThreads* helpers = nullptr;
  transport::ChannelSecurity* security = nullptr;  // null: plain
  transport::StagingHalf* staging = nullptr;       // for memory of GPUs; null: it is not served
  std::string why_not_staged;                      // then
  milliseconds ticket_ttl{5'000};
};

}  // namespace gantry::peer
