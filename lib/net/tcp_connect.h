// Connections to whichever address of a name answers first (RFC 8305). Stateless; thread-safe.
#pragma once

#include <span>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/net/name_lookup.h"
#include "lib/net/socket_address.h"

namespace gantry::net {

struct Connected {
  UniqueFd socket;  // non-blocking, close-on-exec
  SocketAddress address;
};

// Tries the addresses in their order: the next one begins when the one before failed or has been
// silent for 250 ms, and all of them within half of the time. The error names each and why.
Result<Connected> ConnectAny(std::span<const SocketAddress> addresses, TimePoint deadline,
                             const Cancelled& cancelled = {});

}  // namespace gantry::net
