// Looks names up within a deadline. Stateless for callers; thread-safe.
#pragma once

#include <functional>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/host_port.h"
#include "lib/base/result.h"
#include "lib/net/socket_address.h"

namespace gantry::net {

// Ends a wait early, within 20 ms. Empty: nothing does.
using Cancelled = std::function<bool()>;

inline constexpr size_t kAddressesMax = 16;  // of one name; more are left out

// At least one address, in the order in which they are to be tried: that of the system, with the
// two families in turn (RFC 8305). A literal address is not looked up and answers at once.
Result<std::vector<SocketAddress>> LookUp(const HostPort& name, TimePoint deadline,
                                          const Cancelled& cancelled = {});

}  // namespace gantry::net
