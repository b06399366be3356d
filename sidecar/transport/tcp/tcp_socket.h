// TCP sockets as this transport wants them: non-blocking, close-on-exec, no delay, and given up by
// the kernel when the other side acknowledges nothing. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::transport {

struct BoundSocket {
  UniqueFd socket;
  uint16_t port = 0;
};
// `host` is a literal IPv4 or IPv6 address.
Result<BoundSocket> ListenTcp(const std::string& host, uint16_t port);

struct AcceptedSocket {
  UniqueFd socket;      // invalid: nobody waits
  std::string address;  // "10.0.0.7:41000"
};
Result<AcceptedSocket> AcceptTcp(int listener);

// Blocks until it is connected, or until the deadline. Looks names up, which may take longer.
Result<UniqueFd> ConnectTcp(const std::string& host, uint16_t port, TimePoint deadline);

// The shortest that the kernel has seen lately; 0: it does not know.
microseconds RoundTripOf(int socket);

// Blocks until the socket can receive (or send), or fails with kDeadlineExceeded.
Status AwaitSocket(int socket, bool to_send, TimePoint deadline);

}  // namespace gantry::transport
