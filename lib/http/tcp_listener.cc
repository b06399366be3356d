#include "lib/http/tcp_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "lib/base/host_port.h"

namespace gantry::http {
namespace {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
};

// False unless `address` is a literal one with a port.
bool Parse(std::string_view address, Endpoint* endpoint) {
  const auto parsed = ParseHostPort(address);
  if (!parsed) return false;
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&endpoint->address);
  if (::inet_pton(AF_INET6, parsed->host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(parsed->port);
    endpoint->length = sizeof(*v6);
    return true;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&endpoint->address);
  v4->sin_family = AF_INET;
  v4->sin_port = htons(parsed->port);
  endpoint->length = sizeof(*v4);
  return ::inet_pton(AF_INET, parsed->host.c_str(), &v4->sin_addr) == 1;
}

bool IsLoopback(const Endpoint& endpoint) {
  if (endpoint.address.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.address);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.address);
  return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

Status Check(std::string_view address, Reach reach, Endpoint* endpoint) {
  const bool is_address = Parse(address, endpoint);
  if (reach == Reach::kNetwork && !is_address) {
    return Fail(ErrorCode::kInvalidArgument,
                "'" + std::string(address) + "' is no address with a port",
                "write 0.0.0.0:9464 or [::]:9464; names are not looked up");
  }
  if (reach == Reach::kLoopback && !(is_address && IsLoopback(*endpoint))) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "'" + std::string(address) + "' is no loopback address with a port",
        "write 127.0.0.1:port or [::1]:port: leases' tokens travel unencrypted, and names are "
        "not looked up");
  }
  return {};
}

}  // namespace

Result<UniqueFd> ListenTcp(std::string_view address, Reach reach, int backlog, int* port) {
  Endpoint endpoint;
  RETURN_IF_ERROR(Check(address, reach, &endpoint));
  UniqueFd listener(
      ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return Fail(SystemError(ErrorCode::kInternal, "socket", errno));
  const int on = 1, off = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (endpoint.address.ss_family == AF_INET6) {  // whatever net.ipv6.bindv6only says
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  auto* bound = reinterpret_cast<sockaddr*>(&endpoint.address);
  if (::bind(listener.get(), bound, endpoint.length) != 0 ||
      ::listen(listener.get(), backlog) != 0 ||
      ::getsockname(listener.get(), bound, &endpoint.length) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, "cannot listen on " + std::string(address),
                            errno));
  }
  *port = ntohs(endpoint.address.ss_family == AF_INET
                    ? reinterpret_cast<sockaddr_in*>(&endpoint.address)->sin_port
                    : reinterpret_cast<sockaddr_in6*>(&endpoint.address)->sin6_port);
  return listener;
}

}  // namespace gantry::http
