#include "sidecar/api/loopback_listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

#include "sidecar/api/http_interpreter.h"

namespace gantry::api {
namespace {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
};

bool ParsePort(std::string_view text, uint16_t* port) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), *port);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// False unless `address` is a literal loopback address with a port.
bool ParseLoopback(std::string_view address, Endpoint* endpoint) {
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  if (colon == std::string_view::npos || !ParsePort(address.substr(colon + 1), &port)) return false;
  const std::string host(address.substr(0, colon));
  if (host == "[::1]") {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&endpoint->address);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = in6addr_loopback;
    v6->sin6_port = htons(port);
    endpoint->length = sizeof(*v6);
    return true;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&endpoint->address);
  v4->sin_family = AF_INET;
  v4->sin_port = htons(port);
  endpoint->length = sizeof(*v4);
  return ::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1 &&
         (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
}

}  // namespace

Result<UniqueFd> ListenLoopback(std::string_view address, int backlog, int* port) {
  Endpoint endpoint;
  if (!ParseLoopback(address, &endpoint)) {
    return Fail(ErrorCode::kInvalidArgument,
                "'" + std::string(address) + "' is no loopback address with a port",
                "REST listens on 127.0.0.0/8 and [::1] only, because cpp-httplib " +
                    std::string(HttpLibraryVersion()) + " has known holes");
  }
  UniqueFd listener(
      ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return Fail(SystemError(ErrorCode::kInternal, "socket", errno));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
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

}  // namespace gantry::api
