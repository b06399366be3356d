// A listening TCP socket for callers on this machine alone. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::api {

// `address` is "127.x.y.z:port" or "[::1]:port", port 0 for any; names and every other address are
// refused: the HTTP library has known holes, so only this machine may reach it. *port is the bound
// one. The socket does not block.
Result<UniqueFd> ListenLoopback(std::string_view address, int backlog, int* port);

}  // namespace gantry::api
