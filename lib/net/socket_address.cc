#include "lib/net/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>

namespace gantry::net {

std::string SocketAddress::Host() const {
  std::array<char, NI_MAXHOST> host = {};
  const int failed =
      ::getnameinfo(get(), bytes, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? host.data() : "unknown";
}

uint16_t SocketAddress::Port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                                    : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string SocketAddress::Text() const { return HostPort{Host(), Port()}.Text(); }

std::optional<SocketAddress> ParseAddress(const HostPort& at) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, at.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(at.port);
    address.bytes = sizeof(*v4);
    return address;
  }
  if (::inet_pton(AF_INET6, at.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(at.port);
    address.bytes = sizeof(*v6);
    return address;
  }
  return std::nullopt;
}

}  // namespace gantry::net
