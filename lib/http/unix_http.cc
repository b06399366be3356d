#include "lib/http/unix_http.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <array>
#include <iterator>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/poll_fd.h"

namespace gantry::http {
namespace {

constexpr size_t kReadBytes = 16 << 10;

Status SetTimeout(int fd, milliseconds timeout) {
  timeval value = {};
  value.tv_sec = timeout.count() / 1000;
  value.tv_usec = timeout.count() % 1000 * 1000;
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &value, sizeof(value)) != 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &value, sizeof(value)) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "SO_RCVTIMEO", errno));
  }
  return {};
}

std::string HeadOf(const HttpRequest& request) {
  std::string head;
  head.reserve(256 + request.target.size());
  head.append(request.method).append(" ").append(request.target).append(" HTTP/1.1\r\n");
  head.append("Host: gantry\r\nAccept: ").append(request.answer_type).append("\r\n");
  if (!request.bearer.empty()) {
    head.append("Authorization: Bearer ").append(request.bearer).append("\r\n");
  }
  if (!request.body.empty()) {
    head.append("Content-Type: ").append(request.body_type).append("\r\n");
  }
  if (request.method != "GET") {
    head.append("Content-Length: ").append(std::to_string(request.body.size())).append("\r\n");
  }
  return head.append("\r\n");
}

Error SocketError(std::string_view what, int error_number) {
  const bool late = error_number == EAGAIN || error_number == EWOULDBLOCK;
  return SystemError(late ? ErrorCode::kDeadlineExceeded : ErrorCode::kPeerLost, what,
                     late ? ETIMEDOUT : error_number);
}

Status WriteAll(int fd, std::string_view head, std::string_view body, TimePoint deadline) {
  std::array<iovec, 2> parts = {{{const_cast<char*>(head.data()), head.size()},
                                 {const_cast<char*>(body.data()), body.size()}}};
  size_t left = head.size() + body.size();
  msghdr message = {};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  while (left > 0) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Fail(SocketError("send", errno));
    left -= static_cast<size_t>(sent);
    auto skip = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t taken = std::min(skip, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + taken;
      part.iov_len -= taken;
      skip -= taken;
    }
    if (left > 0 && Clock::now() > deadline) return Fail(SocketError("send", EAGAIN));
  }
  return {};
}

// The other side may have closed a connection while it lay idle.
bool IsDead(int fd) {
  char byte = 0;
  const ssize_t received = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace

Result<HttpReply> UnixHttp::Send(const HttpRequest& request) {
  bool fresh = false;
  while (true) {
    auto connection = Checkout(fresh, request.timeout);
    if (!connection) return Fail(Describe(std::move(connection).error(), request));
    // Without memory for the exchange, too: Close must not touch a descriptor that has the number
    // of one that is gone.
    struct AtTheEnd {
      ~AtTheEnd() {
        MutexLock lock(http.mutex_);
        std::erase(http.in_flight_, fd);
      }
      UnixHttp& http;
      int fd;
    } at_the_end{*this, connection->fd.get()};
    End end;
    auto reply = Exchange(&*connection, request, &end);
    const bool may_repeat = end.unread || (end.untouched && request.repeatable);
    const bool again = !reply && may_repeat && connection->used;
    at_the_end.fd = -1;  // another may have the connection from here on
    Checkin(*std::move(connection), end.reusable);
    if (reply) return reply;
    if (fresh || !again) return Fail(Describe(std::move(reply).error(), request));
    fresh = !end.unread;
  }
}

Result<HttpReply> UnixHttp::Exchange(Connection* connection, const HttpRequest& request, End* end) {
  const int fd = connection->fd.get();
  const TimePoint deadline = Clock::now() + request.timeout;
  if (connection->timeout != request.timeout) {
    RETURN_IF_ERROR(SetTimeout(fd, request.timeout));
    connection->timeout = request.timeout;
  }
  if (connection->used && IsDead(fd)) {
    end->unread = true;
    return Fail(ErrorCode::kPeerLost, "the sidecar closed the connection");
  }
  // A server may answer and close before it has read everything (a body over its limit): its
  // answer is worth more than our failure to write.
  Status written = WriteAll(fd, HeadOf(request), request.body, deadline);
  if (!written && written.error().code != ErrorCode::kPeerLost) {
    return Fail(std::move(written).error());
  }
  auto reply = Receive(connection, deadline, end);
  end->reusable = end->reusable && written.has_value();
  return reply;
}

Result<HttpReply> UnixHttp::Receive(Connection* connection, TimePoint deadline, End* end) {
  const int fd = connection->fd.get();
  end->untouched = true;
  HttpReplyParser parser;
  std::array<char, kReadBytes> bytes;
  while (true) {
    const bool arrived = AwaitInputSoon(fd, deadline);
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    const int error_number = received < 0 ? errno : 0;
    const bool in_time = Clock::now() <= deadline;
    const bool nothing = error_number == EAGAIN || error_number == EINTR;
    if (nothing && arrived && in_time) continue;
    const bool late = nothing || !in_time;
    end->untouched = end->untouched && received <= 0 && !late;
    if (received < 0) return Fail(SocketError("receive", late ? EAGAIN : error_number));
    const std::string_view taken(bytes.data(), static_cast<size_t>(received));
    ASSIGN_OR_RETURN(const bool complete, received == 0 ? parser.TakeEnd() : parser.Take(taken));
    if (complete) {
      end->reusable = parser.reusable();
      return parser.TakeReply();
    }
    if (received == 0) {
      return Fail(ErrorCode::kPeerLost, "the sidecar closed the connection before it answered",
                  "the sidecar stopped or was restarted: open a new client");
    }
    if (late) return Fail(SocketError("receive", EAGAIN));
  }
}

Result<UnixHttp::Connection> UnixHttp::Checkout(bool fresh, milliseconds timeout) {
  const auto closed = [] { return Fail(ErrorCode::kCancelled, "the client is closed"); };
  Connection connection;
  {
    MutexLock lock(mutex_);
    if (closed_) return closed();
    if (!fresh && !idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!connection.fd.valid()) {
    connection = {};
    ASSIGN_OR_RETURN(connection.fd, ConnectUnix(socket_path_, SOCK_STREAM, timeout));
  }
  MutexLock lock(mutex_);
  if (closed_) return closed();
  in_flight_.push_back(connection.fd.get());
  return connection;
}

void UnixHttp::Checkin(Connection connection, bool reusable) {
  MutexLock lock(mutex_);
  std::erase(in_flight_, connection.fd.get());
  if (!reusable || closed_ || idle_.size() >= kIdleConnectionsMax) return;
  connection.used = true;
  idle_.push_back(std::move(connection));
}

void UnixHttp::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  idle_.clear();
  for (const int fd : in_flight_) ::shutdown(fd, SHUT_RDWR);
}

Error UnixHttp::Describe(Error error, const HttpRequest& request) const {
  MutexLock lock(mutex_);
  if (closed_) return {ErrorCode::kCancelled, "the client is closed"};
  if (error.code == ErrorCode::kDeadlineExceeded) {
    error.message = "the sidecar did not answer within " + std::to_string(request.timeout.count()) +
                    " ms (" + error.message + ")";
    error.hint = "it stands still or has too much to do: see its log, or allow it more time";
  }
  std::string context(request.method);
  context.append(" ").append(request.target.substr(0, request.target.find('?')));
  return std::move(error).WithContext(context);
}

}  // namespace gantry::http
