#include "sidecar/peer/server/fd_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/wire/fd_ticket_protocol.h"
#include "sidecar/peer/identity/socket_admission.h"
#include "sidecar/transport/tcp/channel/io_loop.h"

namespace gantry::peer {
namespace {

using transport::IoHandler;
using transport::IoLoop;

constexpr int kFdBacklog = 128;

class Connection;

// What the listener and the connections share; only the counts are read by other threads.
struct Acceptor {
  FdSocket::Options options;
  FdSocketHandler& handler;
  UniqueFd listener;
  IoLoop* loop = nullptr;
  bool paused = false;                        // those who connect wait in the backlog
  std::list<Connection*> without_lease = {};  // the oldest first
  std::atomic<size_t> connections = 0;
  std::atomic<uint64_t> descriptors_sent = 0;

  void Pause(bool pause) {
    if (std::exchange(paused, pause) != pause) loop->Change(listener.get(), pause ? 0u : EPOLLIN);
  }
};

class Connection final : public IoHandler {
 public:
  Connection(Acceptor& acceptor, UniqueFd fd)
      : acceptor_(acceptor),
        fd_(std::move(fd)),
        accepted_(Clock::now()),
        place_(acceptor.without_lease.insert(acceptor.without_lease.end(), this)) {}

  int fd() const { return fd_.get(); }

  void OnReady(uint32_t events) override {
    if (Serve(events)) return;
    if (!session_.empty()) acceptor_.handler.LeaseEnded(session_);
    Close();
  }
  void OnTick(TimePoint now) override {
    if (session_.empty() && now - accepted_ > acceptor_.options.attach_timeout) Close();
  }
  void Close() {
    if (session_.empty()) acceptor_.without_lease.erase(place_);
    --acceptor_.connections;
    acceptor_.Pause(false);
    acceptor_.loop->Remove(fd_.get());  // the loop may have been the last to know it
  }

 private:
  // False when the connection is over.
  bool Serve(uint32_t events);
  void Answer(std::string_view request);
  void Send(const Result<size_t>& outcome, std::span<const int> fds);
  // It misbehaved. With a lease it is kept for its end, which says that the process is gone.
  void Mute() {
    muted_ = true;
    acceptor_.loop->Change(fd_.get(), 0);
  }

  Acceptor& acceptor_;
  const UniqueFd fd_;
  const TimePoint accepted_;
  const std::list<Connection*>::iterator place_;  // in without_lease, as long as it has none
  std::string session_;                           // empty: no lease yet
  bool muted_ = false;
};

bool Connection::Serve(uint32_t events) {
  if ((events & EPOLLIN) == 0 || muted_) return (events & (EPOLLHUP | EPOLLERR)) == 0;
  auto request = ReceiveMessage(fd_.get(), wire::kFdTicketRequestBytesMax);
  if (request && !request->closed) {
    Answer(request->payload);
    return true;
  }
  if (request) return false;
  if (request.error().code == ErrorCode::kDeadlineExceeded) return true;
  if (session_.empty()) return false;
  // No error is the end of the other side's process: that shows as a hang-up.
  Mute();
  return true;
}

void Connection::Answer(std::string_view text) {
  const auto request = wire::DecodeFdTicketRequest(text);
  if (!request) return Send(Fail(request.error()), {});
  if (request->verb == wire::FdTicketVerb::kLease) {
    if (!session_.empty()) {
      return Send(Fail(ErrorCode::kConflict, "the connection has its lease"), {});
    }
    auto session = acceptor_.handler.AttachLease(request->ticket);
    if (!session) return Send(Fail(session.error()), {});
    session_ = *std::move(session);
    acceptor_.without_lease.erase(place_);
    return Send(size_t{0}, {});
  }
  const auto fds = acceptor_.handler.Redeem(session_, request->ticket);
  if (!fds) return Send(Fail(fds.error()), {});
  std::vector<int> numbers;
  for (const auto& fd : *fds) numbers.push_back(fd->get());
  Send(numbers.size(), numbers);
  acceptor_.descriptors_sent += numbers.size();
}

void Connection::Send(const Result<size_t>& outcome, std::span<const int> fds) {
  if (Status sent = SendMessage(fd_.get(), wire::EncodeFdTicketReply(outcome), fds); !sent) {
    log::Warning("an initiator does not take its descriptors", {{"error", sent.error()}});
    Mute();
  }
}

class Listener final : public IoHandler {
 public:
  explicit Listener(Acceptor& acceptor) : acceptor_(acceptor) {}

  void OnReady(uint32_t) override {
    errno = 0;
    UniqueFd fd = AcceptAllowed(acceptor_.listener.get(), acceptor_.options.uids_allowed);
    // Out of descriptors or memory: without a pause the loop would spin.
    if (!fd.valid())
      return acceptor_.Pause(errno != EAGAIN && errno != EACCES && errno != ECONNABORTED);
    auto connection = std::make_shared<Connection>(acceptor_, std::move(fd));
    if (!acceptor_.loop->Add(connection->fd(), EPOLLIN, connection)) {
      acceptor_.without_lease.remove(connection.get());
      return;
    }
    // One without a lease gives way; where all have one, those who connect wait.
    if (++acceptor_.connections > acceptor_.options.connections_max)
      acceptor_.without_lease.front()->Close();
    acceptor_.Pause(acceptor_.without_lease.empty() &&
                    acceptor_.connections >= acceptor_.options.connections_max);
  }
  void OnTick(TimePoint) override {
    if (acceptor_.connections < acceptor_.options.connections_max) acceptor_.Pause(false);
  }

 private:
  Acceptor& acceptor_;
};

class LoopFdSocket final : public FdSocket {
 public:
  LoopFdSocket(Options options, FdSocketHandler& handler, UniqueFd listener,
               std::unique_ptr<IoLoop> loop)
      : acceptor_{std::move(options), handler, std::move(listener)}, loop_(std::move(loop)) {
    acceptor_.loop = loop_.get();
  }
  ~LoopFdSocket() override {
    loop_.reset();
    ::unlink(acceptor_.options.path.c_str());
  }

  Status Listen() {
    Status added;
    loop_->RunAndWait([&] {
      added = loop_->Add(acceptor_.listener.get(), EPOLLIN, std::make_shared<Listener>(acceptor_));
    });
    return added;
  }

  size_t connections() const override { return acceptor_.connections; }
  uint64_t descriptors_sent() const override { return acceptor_.descriptors_sent; }

 private:
  Acceptor acceptor_;
  std::unique_ptr<IoLoop> loop_;
};

}  // namespace

Result<std::unique_ptr<FdSocket>> FdSocket::Start(Options options, FdSocketHandler& handler) {
  ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(options.path, SOCK_SEQPACKET | SOCK_NONBLOCK,
                                                 options.mode, kFdBacklog));
  ASSIGN_OR_RETURN(auto loop, IoLoop::Create("gantry-fds"));
  auto socket = std::make_unique<LoopFdSocket>(std::move(options), handler, std::move(listener),
                                               std::move(loop));
  RETURN_IF_ERROR(socket->Listen());
  return std::unique_ptr<FdSocket>(std::move(socket));
}

}  // namespace gantry::peer
