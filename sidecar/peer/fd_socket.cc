#include "sidecar/peer/fd_socket.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <thread>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/wire/fd_ticket_protocol.h"
#include "sidecar/peer/socket_admission.h"

namespace gantry::peer {
namespace {

constexpr int kBacklog = 128;
constexpr int kPollMs = 1'000;

struct Connection {
  UniqueFd fd;
  TimePoint accepted;
  std::string session;  // empty: no lease yet
  bool muted = false;   // misbehaved: kept for its end, which says that the process is gone
};

class PollingFdSocket final : public FdSocket {
 public:
  PollingFdSocket(Options options, FdSocketHandler& handler, UniqueFd listener, UniqueFd wake)
      : options_(std::move(options)),
        handler_(handler),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  ~PollingFdSocket() override {
    thread_.request_stop();
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
    ::unlink(options_.path.c_str());
  }

  size_t connections() const override { return connection_count_; }
  uint64_t descriptors_sent() const override { return descriptors_sent_; }

 private:
  void Run(const std::stop_token& stop);
  void AcceptOne();
  // False when the connection is over.
  bool Serve(Connection& connection, short events);
  void Answer(Connection& connection, std::string_view request);
  void Send(Connection& connection, const Result<size_t>& outcome, std::span<const int> fds);

  const Options options_;
  FdSocketHandler& handler_;
  const UniqueFd listener_;
  const UniqueFd wake_;
  std::atomic<size_t> connection_count_ = 0;
  std::atomic<uint64_t> descriptors_sent_ = 0;
  std::list<Connection> connections_;  // of the thread
  std::jthread thread_;                // last: it uses the others
};

void PollingFdSocket::Run(const std::stop_token& stop) {
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    polled.assign({{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    // A full table does not accept; those who connect wait in the backlog.
    if (connections_.size() >= options_.connections_max) polled[1].events = 0;
    for (const Connection& connection : connections_) {
      polled.push_back({connection.fd.get(), static_cast<short>(connection.muted ? 0 : POLLIN), 0});
    }
    ::poll(polled.data(), polled.size(), kPollMs);
    const TimePoint now = Clock::now();
    size_t index = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++index) {
      const bool late = it->session.empty() && now - it->accepted > options_.attach_timeout;
      const bool keep = !late && Serve(*it, polled[index].revents);
      it = keep ? std::next(it) : connections_.erase(it);
    }
    if ((polled[1].revents & POLLIN) != 0) AcceptOne();
    connection_count_ = connections_.size();
  }
}

void PollingFdSocket::AcceptOne() {
  if (UniqueFd fd = AcceptAllowed(listener_.get(), options_.uids_allowed); fd.valid()) {
    connections_.push_back({std::move(fd), Clock::now(), {}, false});
  }
}

bool PollingFdSocket::Serve(Connection& connection, short events) {
  if ((events & POLLIN) != 0 && !connection.muted) {
    auto request = ReceiveMessage(connection.fd.get(), wire::kFdTicketRequestBytesMax);
    if (request && !request->closed) {
      Answer(connection, request->payload);
      return true;
    }
    if (!request && request.error().code == ErrorCode::kDeadlineExceeded) return true;
    if (!request && request.error().code == ErrorCode::kMalformedBody) {
      connection.muted = true;
      return !connection.session.empty();
    }
  } else if ((events & (POLLHUP | POLLERR)) == 0) {
    return true;
  }
  if (!connection.session.empty()) handler_.LeaseEnded(connection.session);
  return false;
}

void PollingFdSocket::Answer(Connection& connection, std::string_view text) {
  const auto request = wire::DecodeFdTicketRequest(text);
  if (!request) return Send(connection, Fail(request.error()), {});
  if (request->verb == wire::FdTicketVerb::kLease) {
    if (!connection.session.empty()) {
      return Send(connection, Fail(ErrorCode::kConflict, "the connection has its lease"), {});
    }
    auto session = handler_.AttachLease(request->ticket);
    if (!session) return Send(connection, Fail(session.error()), {});
    connection.session = *std::move(session);
    return Send(connection, size_t{0}, {});
  }
  const auto fds = handler_.Redeem(connection.session, request->ticket);
  if (!fds) return Send(connection, Fail(fds.error()), {});
  std::vector<int> numbers;
  for (const auto& fd : *fds) numbers.push_back(fd->get());
  Send(connection, numbers.size(), numbers);
  descriptors_sent_ += numbers.size();
}

void PollingFdSocket::Send(Connection& connection, const Result<size_t>& outcome,
                           std::span<const int> fds) {
  if (Status sent = SendMessage(connection.fd.get(), wire::EncodeFdTicketReply(outcome), fds);
      !sent) {
    log::Warning("an initiator does not take its descriptors", {{"error", sent.error()}});
    connection.muted = true;
  }
}

}  // namespace

Result<std::unique_ptr<FdSocket>> FdSocket::Start(Options options, FdSocketHandler& handler) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(options.path, SOCK_SEQPACKET | SOCK_NONBLOCK,
                                                 options.mode, kBacklog));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "eventfd", errno));
  return std::unique_ptr<FdSocket>(std::make_unique<PollingFdSocket>(
      std::move(options), handler, std::move(listener), std::move(wake)));
}

}  // namespace gantry::peer
