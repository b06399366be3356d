#include "sidecar/registry/handoff_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "sidecar/registry/workload_end.h"

namespace gantry::registry {
namespace {

constexpr int kBacklog = 128;
constexpr int kAcceptsAtOnceMax = 64;
constexpr milliseconds kSweepPeriod{250};

// What an event is about. A connection has two keys: 2 * id for its socket, one more for its
// process; ids begin at 1.
constexpr uint64_t kListenerKey = 0;
constexpr uint64_t kWakerKey = 1;
constexpr uint64_t SocketKey(uint64_t id) { return 2 * id; }
constexpr uint64_t ProcessKey(uint64_t id) { return 2 * id + 1; }

Status Control(int poller, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = key;
  if (::epoll_ctl(poller, operation, fd, &event) == 0) return {};
  return Fail(SystemError(ErrorCode::kInternal, "epoll_ctl", errno));
}

}  // namespace

Result<std::unique_ptr<HandoffServer>> HandoffServer::Start(Options options,
                                                            WorkloadTable& workloads) {
  ASSIGN_OR_RETURN(UniqueFd listener,
                   ListenUnix(options.socket_path, SOCK_SEQPACKET, options.socket_mode, kBacklog));
  UniqueFd poller(::epoll_create1(EPOLL_CLOEXEC));
  UniqueFd waker(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller.valid() || !waker.valid() || ::fcntl(listener.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Fail(
        SystemError(ErrorCode::kResourceExhausted, "setting up the hand-off socket", errno));
  }
  RETURN_IF_ERROR(Control(poller.get(), EPOLL_CTL_ADD, listener.get(), EPOLLIN, kListenerKey));
  RETURN_IF_ERROR(Control(poller.get(), EPOLL_CTL_ADD, waker.get(), EPOLLIN, kWakerKey));
  std::unique_ptr<HandoffServer> server(new HandoffServer(
      std::move(options), workloads, std::move(listener), std::move(poller), std::move(waker)));
  RETURN_IF_ERROR(server->ender_.Start());
  ASSIGN_OR_RETURN(server->thread_,
                   StartThread("gantry-handoff", [raw = server.get()](const std::stop_token& stop) {
                     raw->Serve(stop);
                   }));
  return server;
}

HandoffServer::HandoffServer(Options options, WorkloadTable& workloads, UniqueFd listener,
                             UniqueFd poller, UniqueFd waker)
    : options_(std::move(options)),
      workloads_(workloads),
      ender_(workloads),
      listener_(std::move(listener)),
      poller_(std::move(poller)),
      waker_(std::move(waker)) {}

HandoffServer::~HandoffServer() {
  thread_.request_stop();
  const uint64_t one = 1;
  if (::write(waker_.get(), &one, sizeof(one)) < 0) {
    log::Error("waking the hand-off thread failed", {{"errno", errno}});
  }
  if (thread_.joinable()) thread_.join();
  ::unlink(options_.socket_path.c_str());
  while (!connections_.empty()) Close(connections_.begin(), "the sidecar stops");
}

void HandoffServer::Serve(const std::stop_token& stop) {
  std::array<epoll_event, 64> events;
  TimePoint next_sweep = Clock::now() + kSweepPeriod;
  while (!stop.stop_requested()) {
    const bool idle = connections_.empty() && !accepting_paused_;
    const int timeout_ms = idle ? -1 : static_cast<int>(kSweepPeriod.count());
    const int count =
        ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
    if (count < 0 && errno != EINTR) {
      log::Error("the hand-off socket cannot be waited on", {{"errno", errno}});
      return;
    }
    for (int i = 0; i < count; ++i) {
      Dispatch(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
    }
    if (const TimePoint now = Clock::now(); now >= next_sweep) {
      Sweep(now);
      next_sweep = now + kSweepPeriod;
    }
  }
}

void HandoffServer::Dispatch(uint64_t key, uint32_t events) {
  if (key == kWakerKey) return;
  if (key == kListenerKey) return Accept();
  const auto at = connections_.find(key / 2);
  if (at == connections_.end()) return;  // closed by an event before this one
  if (key == ProcessKey(at->first)) return Close(at, kProcessEnded.why);
  if ((events & EPOLLIN) != 0) return Proceed(at, at->second.OnReadable());
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Close(at, kConnectionClosed.why);
  if ((events & EPOLLOUT) != 0) Proceed(at, at->second.OnWritable());
}

void HandoffServer::Accept() {
  for (int i = 0; i < kAcceptsAtOnceMax; ++i) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      Add(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      log::Warning("a hand-off connection cannot be accepted", {{"errno", errno}});
      PauseAccepting(true);  // it stays readable, and would be retried at once
    }
    return;
  }
}

void HandoffServer::Add(UniqueFd socket) {
  if (!MakeRoom()) {
    log::Warning("too many hand-off connections", {{"limit", options_.connections_max}});
    return;
  }
  auto connection = HandoffConnection::Create(std::move(socket), workloads_);
  if (!connection) {
    log::Warning("a hand-off connection is refused", {{"error", connection.error()}});
    return;
  }
  const uint64_t id = next_id_++;
  const auto at = connections_.emplace(id, *std::move(connection)).first;
  auto watched = Control(poller_.get(), EPOLL_CTL_ADD, at->second.socket(), EPOLLIN, SocketKey(id));
  if (watched && at->second.process() >= 0) {
    watched = Control(poller_.get(), EPOLL_CTL_ADD, at->second.process(), EPOLLIN, ProcessKey(id));
  }
  if (watched) return;
  log::Warning("a hand-off connection cannot be watched", {{"error", watched.error()}});
  connections_.erase(at);
}

// At the limit the oldest connection without a lease has to go: a lease cannot be kept out by
// connections that hold none.
bool HandoffServer::MakeRoom() {
  if (connections_.size() < options_.connections_max) return true;
  for (auto at = connections_.begin(); at != connections_.end(); ++at) {
    if (at->second.attached()) continue;
    Close(at, "");
    return true;
  }
  return false;
}

void HandoffServer::Proceed(Connections::iterator at, HandoffConnection::Next next) {
  if (next == HandoffConnection::Next::kClose) return Close(at, kConnectionClosed.why);
  const uint32_t events = next == HandoffConnection::Next::kWritable ? EPOLLOUT : EPOLLIN;
  if (auto watched =
          Control(poller_.get(), EPOLL_CTL_MOD, at->second.socket(), events, SocketKey(at->first));
      !watched) {
    Close(at, kNotWatched.why);
  }
}

void HandoffServer::Close(Connections::iterator at, std::string_view why) {
  const HandoffConnection& connection = at->second;
  // Said explicitly: a process that is being spawned may have copies of the descriptors.
  ::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, connection.socket(), nullptr);
  if (connection.process() >= 0) {
    ::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, connection.process(), nullptr);
  }
  const bool attached = connection.attached();
  std::string workload = connection.workload();
  const uint64_t generation = connection.generation();
  connections_.erase(at);
  if (attached) ender_.End(std::move(workload), generation, std::string(why));
}

void HandoffServer::Sweep(TimePoint now) {
  if (accepting_paused_) PauseAccepting(false);
  for (auto at = connections_.begin(); at != connections_.end();) {
    const auto current = at++;
    const HandoffConnection& connection = current->second;
    if (connection.attached()) {
      // Its workload was deleted: the connection holds nothing any more.
      if (!workloads_.IsCurrent(connection.workload(), connection.generation())) Close(current, "");
    } else if (now - connection.connected_at() >= options_.attach_timeout) {
      Close(current, "");
    }
  }
}

void HandoffServer::PauseAccepting(bool paused) {
  accepting_paused_ = paused;
  const uint32_t events = paused ? 0U : static_cast<uint32_t>(EPOLLIN);
  auto set = Control(poller_.get(), EPOLL_CTL_MOD, listener_.get(), events, kListenerKey);
  if (!set) log::Error("the hand-off listener cannot be watched", {{"error", set.error()}});
}

}  // namespace gantry::registry
