// Sockets that their process has left behind. Stateless; thread-safe.
#pragma once

#include <string>

namespace gantry::deviceplugin {

// Says whether the path itself, not what a link there points to, is a socket.
bool IsSocket(const std::string& path);

// There is a socket and nobody listens at it. False also when that cannot be told, as of one that
// this user may not connect to: a plugin without capabilities is not above modes. Does not wait.
bool IsAbandonedSocket(const std::string& path);

}  // namespace gantry::deviceplugin
