#include "client/session/handoff_lease.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <utility>

#include "lib/base/fd_passing.h"

namespace gantry::client {
namespace {

constexpr char kLeaseLostHint[] =
    "the sidecar stopped or was restarted: open a new client and register again";

}  // namespace

Result<std::unique_ptr<HandoffLease>> HandoffLease::Attach(const std::string& socket_path,
                                                           const std::string& lease_token,
                                                           milliseconds timeout) {
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(socket_path, SOCK_SEQPACKET, timeout));
  timeval limit = {};
  limit.tv_sec = timeout.count() / 1000;
  limit.tv_usec = timeout.count() % 1000 * 1000;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
    return Fail(SystemError(ErrorCode::kInternal, "SO_RCVTIMEO", errno));
  }
  std::unique_ptr<HandoffLease> lease(new HandoffLease(std::move(socket)));
  wire::HandoffRequest attach;
  attach.type = wire::HandoffType::kAttach;
  attach.lease_token = lease_token;
  ASSIGN_OR_RETURN(const wire::HandoffReply ignored, lease->Exchange(attach, {}));
  static_cast<void>(ignored);
  return lease;
}

Result<std::vector<std::string>> HandoffLease::HandOver(std::span<const int> fds) {
  wire::HandoffRequest request;
  request.type = wire::HandoffType::kFds;
  request.fd_count = fds.size();
  ASSIGN_OR_RETURN(wire::HandoffReply reply, Exchange(request, fds));
  if (reply.tokens.size() != fds.size()) {
    return Fail(ErrorCode::kInternal, "the sidecar answered " + std::to_string(fds.size()) +
                                          " descriptors with " +
                                          std::to_string(reply.tokens.size()) + " tokens");
  }
  return std::move(reply.tokens);
}

Status HandoffLease::Release(const std::vector<std::string>& tokens) {
  wire::HandoffRequest request;
  request.type = wire::HandoffType::kRelease;
  request.tokens = tokens;
  RETURN_IF_ERROR(Exchange(request, {}));
  return {};
}

Status HandoffLease::Ping() {
  RETURN_IF_ERROR(Exchange({}, {}));
  return {};
}

bool HandoffLease::alive() const {
  pollfd query = {socket_.get(), POLLRDHUP, 0};
  return ::poll(&query, 1, 0) == 0;
}

void HandoffLease::End() { ::shutdown(socket_.get(), SHUT_RDWR); }

Result<wire::HandoffReply> HandoffLease::Exchange(const wire::HandoffRequest& request,
                                                  std::span<const int> fds) {
  const auto lost = [](std::string why) {
    return Fail(ErrorCode::kSidecarLost, "the lease is lost: " + std::move(why), kLeaseLostHint);
  };
  const std::string payload = wire::Encode(request);
  // Before it is sent: an answer that nobody has the memory to take would be taken for the next
  // request's.
  std::string space(wire::kHandoffMessageBytesMax + 1, '\0');
  MutexLock lock(mutex_);
  if (broken_) return lost("an earlier request had no answer");
  broken_ = true;
  if (Status sent = SendMessage(socket_.get(), payload, fds); !sent) {
    return lost(std::move(sent).error().message);
  }
  auto message = ReceiveMessage(socket_.get(), wire::kHandoffMessageBytesMax, std::move(space));
  broken_ = !message || message->closed;
  if (broken_) {
    if (!message && message.error().code == ErrorCode::kDeadlineExceeded) {
      return Fail(ErrorCode::kDeadlineExceeded, "the sidecar did not answer on the hand-off socket",
                  "it stands still or has too much to do: open a new client when it is back");
    }
    return lost(message ? "the sidecar closed the hand-off socket" : message.error().message);
  }
  return wire::DecodeHandoffReply(message->payload);
}

}  // namespace gantry::client
