#include "sidecar/transport/tcp/tcp_socket.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

namespace gantry::transport {
namespace {

constexpr int kBacklog = 256;
// Sent data that nobody acknowledges for so long ends the connection.
constexpr unsigned kUserTimeoutMs = 10'000;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> LookUp(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return Fail(ErrorCode::kPeerUnavailable,
                "'" + host + "' is no address: " + std::string(::gai_strerror(error)));
  }
  return Addresses(list);
}

std::string TextOf(const sockaddr* address, socklen_t bytes) {
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (::getnameinfo(address, bytes, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return std::string(host.data()) + ":" + port.data();
}

void SetUp(int socket) {
  const int one = 1;
  // Without these it works too, only slower or later.
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs,
                     sizeof(kUserTimeoutMs));
}

Result<UniqueFd> ConnectOne(const addrinfo& address, TimePoint deadline) {
  UniqueFd socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "socket", errno));
  const std::string text = TextOf(address.ai_addr, address.ai_addrlen);
  SetUp(socket.get());
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) {
      return Fail(SystemError(ErrorCode::kPeerUnavailable, "connecting to " + text, errno));
    }
    if (auto ready = AwaitSocket(socket.get(), /*to_send=*/true, deadline); !ready) {
      return Fail(std::move(ready).error().WithContext("connecting to " + text));
    }
    int error = 0;
    socklen_t bytes = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
      return Fail(SystemError(ErrorCode::kPeerUnavailable, "connecting to " + text, error));
    }
  }
  return socket;
}

}  // namespace

Result<BoundSocket> ListenTcp(const std::string& host, uint16_t port) {
  ASSIGN_OR_RETURN(const Addresses addresses, LookUp(host, port, AI_NUMERICHOST | AI_PASSIVE));
  BoundSocket bound;
  bound.socket.reset(
      ::socket(addresses->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const std::string what = "listening on " + host + ":" + std::to_string(port);
  if (!bound.socket.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, what, errno));
  }
  const int one = 1;
  (void)::setsockopt(bound.socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(bound.socket.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(bound.socket.get(), kBacklog) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, what, errno));
  }
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (::getsockname(bound.socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "getsockname", errno));
  }
  bound.port = ntohs(address.ss_family == AF_INET6
                         ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                         : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  return bound;
}

Result<AcceptedSocket> AcceptTcp(int listener) {
  sockaddr_storage address = {};
  while (true) {
    socklen_t bytes = sizeof(address);
    AcceptedSocket accepted;
    accepted.socket.reset(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &bytes,
                                    SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.socket.valid()) {
      SetUp(accepted.socket.get());
      accepted.address = TextOf(reinterpret_cast<const sockaddr*>(&address), bytes);
      return accepted;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return accepted;
    // The connection was gone before it was taken.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    return Fail(SystemError(ErrorCode::kResourceExhausted, "accept", errno));
  }
}

Result<UniqueFd> ConnectTcp(const std::string& host, uint16_t port, TimePoint deadline) {
  ASSIGN_OR_RETURN(const Addresses addresses, LookUp(host, port, 0));
  Error last(ErrorCode::kPeerUnavailable, "'" + host + "' has no address");
  for (const addrinfo* address = addresses.get(); address != nullptr; address = address->ai_next) {
    auto socket = ConnectOne(*address, deadline);
    if (socket) return socket;
    last = std::move(socket).error();
  }
  return Fail(std::move(last));
}

microseconds RoundTripOf(int socket) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  // All bits set: no sample yet.
  return microseconds(info.tcpi_min_rtt == UINT32_MAX ? 0 : info.tcpi_min_rtt);
}

Status AwaitSocket(int socket, bool to_send, TimePoint deadline) {
  pollfd poll = {socket, static_cast<int16_t>(to_send ? POLLOUT : POLLIN), 0};
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) {
      return Fail(SystemError(ErrorCode::kInternal, "poll", errno));
    }
    if (left <= 0) return Fail(ErrorCode::kDeadlineExceeded, "the other side did not answer");
  }
}

}  // namespace gantry::transport
