// An address of a socket, with its port. A plain value.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/host_port.h"

namespace gantry::net {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t Port() const;
  std::string Host() const;  // "10.0.0.7", "fd00::7", "fe80::7%eth0"
  std::string Text() const;  // with the port: "10.0.0.7:7450", "[fd00::7]:7450"
};

// Nothing when the host is a name.
std::optional<SocketAddress> ParseAddress(const HostPort& at);

}  // namespace gantry::net
