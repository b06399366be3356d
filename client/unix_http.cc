#include "client/unix_http.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <array>
#include <iterator>
#include <utility>

#include "client/mailbox_opening.h"
#include "lib/base/fd_passing.h"

namespace gantry::client {
namespace {

constexpr size_t kReadBytes = 16 << 10;
constexpr milliseconds kMailboxTime{100};  // to be given one: the request waits meanwhile

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
        http.in_flight_.erase(fd);
      }
      UnixHttp& http;
      int fd;
    } at_the_end{*this, connection->fd.get()};
    End end;
    auto reply = Exchange(&*connection, request, &end);
    const bool may_repeat = end.unread || (end.untouched && request.repeatable);
    const bool again = !reply && may_repeat && connection->requests > 0;
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
  if (connection->requests == kMailboxAfter && may_have_mailbox_ && !connection->mailbox) {
    const Status opened = OpenMailbox(connection, std::min(deadline, Clock::now() + kMailboxTime));
    end->unread = !opened;
    if (!opened) return Fail(opened.error());
  }
  const std::string head = HeadOf(request);
  if (connection->mailbox) connection->mailbox->Look();
  if (connection->mailbox && connection->mailbox->Offer(head, request.body)) {
    return Receive(connection, /*by_mailbox=*/true, deadline, end);
  }
  if (connection->requests > 0 && IsDead(fd)) {
    end->unread = true;
    return Fail(ErrorCode::kPeerLost, "the sidecar closed the connection");
  }
  // A server may answer and close before it has read everything (a body over its limit): its
  // answer is worth more than our failure to write.
  Status written = WriteAll(fd, head, request.body, deadline);
  if (!written && written.error().code != ErrorCode::kPeerLost) {
    return Fail(std::move(written).error());
  }
  auto reply = Receive(connection, /*by_mailbox=*/false, deadline, end);
  end->reusable = end->reusable && written.has_value();
  return reply;
}

Result<HttpReply> UnixHttp::Receive(Connection* connection, bool by_mailbox, TimePoint deadline,
                                    End* end) {
  const int fd = connection->fd.get();
  Mailbox* const mailbox = connection->mailbox ? &*connection->mailbox : nullptr;
  end->untouched = true;
  HttpReplyParser parser;
  std::array<char, kReadBytes> bytes;
  while (true) {
    const bool arrived = connection->wait.Await(fd, deadline, mailbox);
    size_t mail = 0;
    if (mailbox != nullptr) {
      ASSIGN_OR_RETURN(mail, mailbox->Take(bytes));
    }
    const ssize_t received = mail > 0 ? static_cast<ssize_t>(mail)
                                      : ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    const int error_number = received < 0 ? errno : 0;
    const bool in_time = Clock::now() <= deadline;
    const bool nothing = error_number == EAGAIN || error_number == EINTR;
    // What lay in the mailbox was taken back, and comes over the socket.
    if (nothing && arrived && in_time) continue;
    // An answer that was put there just before the end.
    if (received == 0 && in_time && mailbox != nullptr && mailbox->HasMessage()) continue;
    const bool late = nothing || !in_time;
    end->untouched = end->untouched && received <= 0 && !late;
    end->unread = received <= 0 && by_mailbox && mailbox->TakeBack() && !late;
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

// Where many requests use a connection it is worth one more. After an error the connection is of no
// use, and no request has gone over it.
Status UnixHttp::OpenMailbox(Connection* connection, TimePoint deadline) {
  auto mailbox = client::OpenMailbox(connection->fd.get(), deadline);
  if (!mailbox) {
    const ErrorCode code = mailbox.error().code;
    const bool gone = code == ErrorCode::kPeerLost || code == ErrorCode::kDeadlineExceeded;
    if (!gone) may_have_mailbox_ = false;  // this process cannot have one
    return Fail(std::move(mailbox).error());
  }
  switch (mailbox->outcome) {
    case OpenedMailbox::Outcome::kOpened:
      connection->mailbox.emplace(*std::move(mailbox->mailbox));
      has_mailbox_ = true;
      break;
    case OpenedMailbox::Outcome::kNotNow:
      break;
    case OpenedMailbox::Outcome::kNever:
      may_have_mailbox_ = false;
      break;
  }
  return {};
}

Status UnixHttp::OpenRehearsal() {
  // Nobody reads meanwhile: what does not fit is an error.
  ASSIGN_OR_RETURN(auto ends, SocketPair(SOCK_STREAM | SOCK_NONBLOCK));
  Connection connection;
  Stand stand;
  if (has_mailbox_) {
    ASSIGN_OR_RETURN(Mailbox::Pair mailbox, Mailbox::MakePair());
    connection.mailbox.emplace(std::move(mailbox.client));
    stand.mailbox.emplace(std::move(mailbox.server));
  }
  connection.fd = std::move(ends[0]);
  stand.fd = std::move(ends[1]);
  rehearsal_ = std::move(connection);
  stand_ = std::move(stand);
  return {};
}

Status UnixHttp::SendRehearsed(std::string_view answer, TimePoint deadline) {
  if (stand_.mailbox) {
    stand_.mailbox->Look();
    rehearsal_.mailbox->Look();
    if (stand_.mailbox->Offer(answer)) return {};
  }
  return WriteAll(stand_.fd.get(), answer, {}, deadline);
}

// The request, which is to be all that came.
bool UnixHttp::DrainRehearsed() {
  std::array<char, kReadBytes> bytes;
  if (stand_.mailbox) {
    const auto taken = stand_.mailbox->Take(bytes);
    if (!taken || *taken > 0) return taken.has_value();
  }
  const ssize_t drained = ::recv(stand_.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  return drained > 0 && drained < std::ssize(bytes);
}

Result<HttpReply> UnixHttp::Rehearse(const HttpRequest& request, std::string_view answer) {
  MutexLock lock(rehearsal_mutex_);
  const bool is_open = stand_.fd.valid() && stand_.mailbox.has_value() == has_mailbox_;
  if (!is_open) RETURN_IF_ERROR(OpenRehearsal());
  if (Status sent = SendRehearsed(answer, Clock::now() + request.timeout); !sent) {
    stand_.fd.reset();
    return Fail(std::move(sent).error());
  }
  End end;
  auto reply = Exchange(&rehearsal_, request, &end);
  const bool drained = DrainRehearsed();
  if (!reply || !end.reusable || !drained) stand_.fd.reset();  // something may be left in it
  return reply;
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
  in_flight_.insert(connection.fd.get());
  return connection;
}

void UnixHttp::Checkin(Connection connection, bool reusable) {
  MutexLock lock(mutex_);
  in_flight_.erase(connection.fd.get());
  if (!reusable || closed_ || idle_.size() >= kIdleConnectionsMax) return;
  ++connection.requests;
  idle_.push_back(std::move(connection));
}

void UnixHttp::Close() {
  {
    MutexLock rehearsal_lock(rehearsal_mutex_);
    stand_ = {};
    rehearsal_ = {};
  }
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

}  // namespace gantry::client
