#include "sidecar/transport/tcp/channel/tcp_socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/net/name_lookup.h"
#include "lib/net/tcp_connect.h"

namespace gantry::transport {
namespace {

constexpr int kBacklog = 256;
// Sent data that nobody acknowledges for so long ends the connection.
constexpr unsigned kUserTimeoutMs = 10'000;

void SetUp(int socket) {
  const int one = 1;
  // Without these it works too, only slower or later.
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs,
                     sizeof(kUserTimeoutMs));
}

}  // namespace

Result<BoundSocket> ListenTcp(const std::string& host, uint16_t port) {
  const auto at = net::ParseAddress({host, port});
  if (!at) {
    return Fail(ErrorCode::kInvalidArgument,
                "data connections cannot be taken at '" + host + "': it is no address",
                "write an IPv4 or IPv6 address to listen at: names are not looked up");
  }
  BoundSocket bound;
  bound.socket.reset(
      ::socket(at->family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const std::string what = "listening on " + host + ":" + std::to_string(port);
  if (!bound.socket.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, what, errno));
  }
  const int one = 1;
  (void)::setsockopt(bound.socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(bound.socket.get(), at->get(), at->bytes) != 0 ||
      ::listen(bound.socket.get(), kBacklog) != 0) {
    return Fail(SystemError(ErrorCode::kInvalidArgument, what, errno));
  }
  net::SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (::getsockname(bound.socket.get(), address.get(), &address.bytes) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "getsockname", errno));
  }
  bound.port = address.Port();
  return bound;
}

Result<AcceptedSocket> AcceptTcp(int listener) {
  net::SocketAddress address;
  while (true) {
    address.bytes = sizeof(address.storage);
    AcceptedSocket accepted;
    accepted.socket.reset(
        ::accept4(listener, address.get(), &address.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.socket.valid()) {
      SetUp(accepted.socket.get());
      accepted.address = address.Text();
      return accepted;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return accepted;
    // The connection was gone before it was taken.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    return Fail(SystemError(ErrorCode::kResourceExhausted, "accept", errno));
  }
}

Result<ConnectedSocket> ConnectTcp(const std::string& host, uint16_t port, TimePoint deadline,
                                   const net::Cancelled& cancelled) {
  ASSIGN_OR_RETURN(const auto addresses, net::LookUp({host, port}, deadline, cancelled));
  ASSIGN_OR_RETURN(net::Connected connected, net::ConnectAny(addresses, deadline, cancelled));
  SetUp(connected.socket.get());
  return ConnectedSocket{std::move(connected.socket), connected.address.Text()};
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
