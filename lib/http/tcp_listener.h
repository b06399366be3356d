// A listening TCP socket. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::http {

enum class Reach {
  kLoopback,  // callers on this machine alone, or in this pod
  kNetwork,   // whoever gets through to the address
};

// `address` is a literal one: "127.0.0.1:port", "[::1]:port", and with kNetwork any; port 0 is any
// port. "[::]:port" takes IPv4, too. *port is the bound one. The socket does not block.
Result<UniqueFd> ListenTcp(std::string_view address, Reach reach, int backlog, int* port);

}  // namespace gantry::http
