// TCP sockets as this transport wants them: non-blocking, close-on-exec, no delay, and given up by
// the kernel when the other side acknowledges nothing. Stateless; thread-safe.
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
  UniqueFd socket;      // invalid: nobody waits
  std::string address;  // "10.0.0.7:41000", "[fd00::7]:41000"
};
Result<AcceptedSocket> AcceptTcp(int listener);

struct ConnectedSocket {
  UniqueFd socket;
  std::string address;  // "10.0.0.7:7201", of the one that answered
};
// Blocks until it is connected, or until the deadline. The addresses of a name are tried side by
// side.
Result<ConnectedSocket> ConnectTcp(const std::string& host, uint16_t port, TimePoint deadline,
                                   const net::Cancelled& cancelled = {});

// The shortest that the kernel has seen lately; 0: it does not know.
microseconds RoundTripOf(int socket);

// Blocks until the socket can receive (or send), or fails with kDeadlineExceeded.
Status AwaitSocket(int socket, bool to_send, TimePoint deadline);

}  // namespace gantry::transport
