#include "bench/keep_alive_socket.h"

#include <strings.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/poll_fd.h"

namespace gantry::bench {
namespace {

constexpr size_t kAnswerBytesMax = 16 << 20;

// The value of a header in `head`, which ends before the empty line.
std::string_view HeaderOf(std::string_view head, std::string_view name) {
  for (size_t line = head.find("\r\n"); line != std::string_view::npos;
       line = head.find("\r\n", line + 2)) {
    const std::string_view rest = head.substr(line + 2);
    if (rest.size() <= name.size() || rest[name.size()] != ':' ||
        strncasecmp(rest.data(), name.data(), name.size()) != 0) {
      continue;
    }
    std::string_view value = rest.substr(name.size() + 1, rest.find("\r\n") - name.size() - 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    return value;
  }
  return {};
}

}  // namespace

Result<KeepAliveSocket> KeepAliveSocket::Connect(const std::string& socket_path) {
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(socket_path, SOCK_STREAM));
  return KeepAliveSocket(std::move(socket));
}

std::string KeepAliveSocket::MakeRequest(const std::string& method, const std::string& target,
                                         const std::string& body, const std::string& type) {
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n";
  if (!body.empty()) {
    request += "Accept: " + type + "\r\nContent-Type: " + type +
               "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return request + "\r\n" + body;
}

Status KeepAliveSocket::Send(const std::string& request) {
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t now =
        send(socket_.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return Fail(SystemError(ErrorCode::kPeerLost, "sending a request", errno));
    sent += static_cast<size_t>(now);
  }
  return {};
}

Status KeepAliveSocket::ReceiveMore() {
  std::array<char, 64 << 10> buffer;
  for (;;) {
    AwaitInputSoon(socket_.get(), TimePoint::max());  // as libgantry
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fail(SystemError(ErrorCode::kPeerLost, "awaiting an answer", errno));
    if (got == 0) return Fail(ErrorCode::kPeerLost, "the sidecar closed the connection");
    received_.append(buffer.data(), static_cast<size_t>(got));
    if (received_.size() <= kAnswerBytesMax) return {};
    return Fail(ErrorCode::kBodyTooLarge, "the sidecar's answer does not end");
  }
}

Result<std::string> KeepAliveSocket::Call(const std::string& request) {
  received_.clear();
  RETURN_IF_ERROR(Send(request));
  size_t end_of_head = std::string::npos;
  while ((end_of_head = received_.find("\r\n\r\n")) == std::string::npos) {
    RETURN_IF_ERROR(ReceiveMore());
  }
  const std::string_view head(received_.data(), end_of_head);
  const std::string_view length = HeaderOf(head, "Content-Length");
  size_t body_bytes = 0;
  const auto parsed = std::from_chars(length.data(), length.data() + length.size(), body_bytes);
  if (length.empty() || parsed.ec != std::errc()) {
    return Fail(ErrorCode::kInternal, "the sidecar's answer has no Content-Length");
  }
  const bool ok = head.starts_with("HTTP/1.1 2");
  const size_t body_start = end_of_head + 4;
  while (received_.size() < body_start + body_bytes) RETURN_IF_ERROR(ReceiveMore());
  std::string body = received_.substr(body_start, body_bytes);
  if (ok) return body;
  return Fail(ErrorCode::kInternal,
              "the sidecar answered " + received_.substr(0, received_.find("\r\n")) + ": " + body);
}

}  // namespace gantry::bench
