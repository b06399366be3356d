// A listening TCP socket. Thread-safe.
#pragma once

#include <string_view>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::http {

enum class Reach {
  kLoopback,  // callers on this machine or in this pod only
  kNetwork,   // any caller that can reach the address
};

// `address` is literal: "127.0.0.1:port" or "[::1]:port"; with kNetwork any address. "[::]:port"
// includes IPv4. Port 0 picks one; *port receives it. The socket is non-blocking.
Result<UniqueFd> ListenTcp(std::string_view address, Reach reach, int backlog, int* port);

}  // namespace gantry::http
