// TCP sockets for this transport: non-blocking, close-on-exec, TCP_NODELAY. The kernel closes a
// connection when the peer stops acknowledging. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/net/name_lookup.h"

namespace gantry::transport {

struct BoundSocket {
  UniqueFd socket;
  uint16_t port = 0;
};
// `host` is a literal IPv4 or IPv6 address.
Result<BoundSocket> ListenTcp(const std::string& host, uint16_t port);

struct AcceptedSocket {
  UniqueFd socket;      // invalid: no connection is waiting
  std::string address;  // "10.0.0.7:41000", "[fd00::7]:41000"
};
Result<AcceptedSocket> AcceptTcp(int listener);

struct ConnectedSocket {
  UniqueFd socket;
  std::string address;  // "10.0.0.7:7201", the address that answered
};
// Blocks until it is connected, cancelled, or the deadline passes. The addresses of a name are
// tried in parallel.
Result<ConnectedSocket> ConnectTcp(const std::string& host, uint16_t port, TimePoint deadline,
                                   const net::Cancelled& cancelled = {});

// The shortest round trip that the kernel has seen lately; 0: unknown.
microseconds RoundTripOf(int socket);

// Blocks until the socket can receive (or send). kDeadlineExceeded at the deadline.
Status AwaitSocket(int socket, bool to_send, TimePoint deadline);

}  // namespace gantry::transport
