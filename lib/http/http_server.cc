#include "lib/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/base/log_rate_limiter.h"
#include "lib/base/mutex.h"
#include "lib/base/thread.h"
#include "lib/http/connection_entries.h"
#include "lib/http/error_response.h"

namespace gantry::http {
namespace {

constexpr int kBacklog = 512;
constexpr int kAcceptsPerEvent = 64;
constexpr int kRequestsPerTurn = 16;  // of one connection, while others wait
// Tokens of epoll events: the stop event, the listeners, then connections, never used twice.
constexpr uint64_t kStopToken = 0;
constexpr uint64_t kUnixToken = 1;
constexpr uint64_t kTcpToken = 2;
constexpr uint64_t kFirstConnection = 16;

}  // namespace

// Every thread waits in the same epoll set. An event disarms its source, so that one thread owns a
// connection from the event until it arms it again.
class HttpServer::Loop {
 public:
  Loop(const HttpServerOptions& options, Handler handler)
      : options_(options), interpreter_(std::move(handler)), share_{options.connection} {}
  ~Loop() { Stop(Clock::now() + milliseconds(5'000)); }

  Status Start() EXCLUDES(mutex_);
  void Stop(TimePoint deadline) EXCLUDES(mutex_);
  int tcp_port() const { return tcp_port_; }
  size_t connections() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return entries_.size();
  }
  size_t threads() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return threads_.size();
  }

 private:
  TimePoint drain_deadline() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return drain_deadline_;
  }
  Status Listen();
  Status ListenOnUnix();
  Status Arm(int fd, uint32_t events, uint64_t token, int operation);
  bool AddThread() EXCLUDES(mutex_);
  using Thread = std::list<std::jthread>::iterator;
  void Run(Thread self) EXCLUDES(mutex_);
  bool EndIdle(Thread self) EXCLUDES(mutex_);
  void Accept(uint64_t token) EXCLUDES(mutex_);
  bool MakeRoom(bool tcp) EXCLUDES(mutex_);
  void Add(UniqueFd socket, bool tcp, bool refused) EXCLUDES(mutex_);
  HttpConnection* Claim(uint64_t token) EXCLUDES(mutex_);
  void GiveBack(uint64_t token, HttpConnection* connection, uint32_t events) EXCLUDES(mutex_);
  void Close(uint64_t token) EXCLUDES(mutex_);
  void Handle(uint64_t token, HttpConnection* connection) EXCLUDES(mutex_);
  bool SpinFor(HttpConnection* connection);
  void Serve(HttpConnection* connection) EXCLUDES(mutex_);
  void Sweep() EXCLUDES(mutex_);
  void SweepOnce() EXCLUDES(mutex_);

  const HttpServerOptions options_;
  HttpInterpreter interpreter_;
  ConnectionShare share_;
  UniqueFd epoll_;
  UniqueFd stop_event_;
  UniqueFd listeners_[2];  // Unix, TCP
  bool unix_socket_exists_ = false;
  int tcp_port_ = 0;
  std::atomic<size_t> idle_threads_ = 0;
  std::atomic<bool> one_spins_ = false;

  mutable Mutex mutex_;
  Condition changed_;  // a thread ended, or the server stops
  ConnectionEntries entries_ GUARDED_BY(mutex_);
  uint64_t next_token_ GUARDED_BY(mutex_) = kFirstConnection;
  std::list<std::jthread> threads_ GUARDED_BY(mutex_);
  std::list<std::jthread> ended_threads_ GUARDED_BY(mutex_);  // to be joined
  size_t running_threads_ GUARDED_BY(mutex_) = 0;
  bool accept_pauses_ GUARDED_BY(mutex_) = false;  // no descriptors left; the sweep goes on
  TimePoint drain_deadline_ GUARDED_BY(mutex_) = TimePoint::max();
  log::RateLimiter gave_way_;
  log::RateLimiter no_thread_;
  std::jthread sweeper_;
};

Status HttpServer::Loop::Arm(int fd, uint32_t events, uint64_t token, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return Fail(SystemError(ErrorCode::kInternal, "epoll_ctl", errno));
}

Status HttpServer::Loop::Listen() {
  if (!options_.unix_path.empty()) RETURN_IF_ERROR(ListenOnUnix());
  if (options_.tcp_address.empty()) return {};
  ASSIGN_OR_RETURN(listeners_[1],
                   ListenTcp(options_.tcp_address, options_.tcp_reach, kBacklog, &tcp_port_));
  return Arm(listeners_[1].get(), EPOLLIN | EPOLLONESHOT, kTcpToken, EPOLL_CTL_ADD);
}

Status HttpServer::Loop::ListenOnUnix() {
  constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK;
  ASSIGN_OR_RETURN(listeners_[0],
                   ListenUnix(options_.unix_path, kType, options_.unix_mode, kBacklog));
  unix_socket_exists_ = true;
  return Arm(listeners_[0].get(), EPOLLIN | EPOLLONESHOT, kUnixToken, EPOLL_CTL_ADD);
}

Status HttpServer::Loop::Start() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  stop_event_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !stop_event_.valid()) {
    return Fail(SystemError(ErrorCode::kInternal, "epoll_create1", errno));
  }
  RETURN_IF_ERROR(Arm(stop_event_.get(), EPOLLIN, kStopToken, EPOLL_CTL_ADD));
  RETURN_IF_ERROR(Listen());
  for (size_t i = 0; i < options_.threads_min; ++i) {
    if (!AddThread()) return Fail(NoThread("gantry-http", "it has fewer than it needs"));
  }
  ASSIGN_OR_RETURN(sweeper_, StartThread("gantry-sweep", [this] { Sweep(); }));
  return {};
}

bool HttpServer::Loop::AddThread() {
  const MutexLock lock(mutex_);
  if (threads_.size() == options_.threads_max || share_.stopping) return false;
  const Thread self = threads_.emplace(threads_.end());
  ++idle_threads_;  // from now on: it may take a while to begin
  auto thread = StartThread("gantry-http", [this, self] { Run(self); });
  if (!thread) {
    threads_.erase(self);
    --idle_threads_;
    if (no_thread_.Pass()) log::Warning("requests cannot wait", {{"error", thread.error()}});
    return false;
  }
  *self = *std::move(thread);
  ++running_threads_;
  return true;
}

void HttpServer::Loop::Run(Thread self) {
  const auto idle_ms = static_cast<int>(options_.thread_idle_max.count());
  for (bool started = true; !share_.stopping; started = false) {
    epoll_event event{};
    if (!started) ++idle_threads_;
    const int count = ::epoll_wait(epoll_.get(), &event, 1, idle_ms);
    --idle_threads_;
    if (count == 0 && EndIdle(self)) return;
    if (count <= 0 || event.data.u64 == kStopToken) continue;
    if (event.data.u64 < kFirstConnection) {
      Accept(event.data.u64);
    } else if (HttpConnection* connection = Claim(event.data.u64)) {
      Handle(event.data.u64, connection);
    }
  }
  const MutexLock lock(mutex_);
  --running_threads_;
  changed_.NotifyAll();
}

// Not the last one that waits for events, which may be the one that Serve leaves behind for others.
bool HttpServer::Loop::EndIdle(Thread self) {
  const MutexLock lock(mutex_);
  if (share_.stopping || running_threads_ <= options_.threads_min || idle_threads_ == 0) {
    return false;
  }
  ended_threads_.splice(ended_threads_.end(), threads_, self);
  --running_threads_;
  return true;
}

void HttpServer::Loop::Accept(uint64_t token) {
  const UniqueFd& listener = listeners_[token - kUnixToken];
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.valid()) {
      Add(std::move(socket), token == kTcpToken, !MakeRoom(token == kTcpToken));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const MutexLock lock(mutex_);
      accept_pauses_ = true;
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    }
  }
  (void)Arm(listener.get(), EPOLLIN | EPOLLONESHOT, token, EPOLL_CTL_MOD);
}

// If there are too many, closes the first to go. False: all of them are in use.
bool HttpServer::Loop::MakeRoom(bool tcp) {
  const MutexLock lock(mutex_);
  if (entries_.size() < options_.connections_max) return true;
  const auto first = FirstToGo(&entries_, options_.connections_max, tcp);
  if (first == entries_.end()) return false;
  entries_.erase(first);
  if (const auto untold = gave_way_.Pass()) {
    log::Info(
        "an HTTP connection gave way to a new one",
        {{"connections_max", options_.connections_max}, {"more_since_the_last_line", *untold}});
  }
  return true;
}

void HttpServer::Loop::Add(UniqueFd socket, bool tcp, bool refused) {
  std::optional<uid_t> uid;
  if (tcp) {
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  } else {
    const auto credentials = CredentialsOf(socket.get());
    if (!credentials) return;
    uid = credentials->uid;
  }
  const std::string& hint = options_.connections_hint;
  const MutexLock lock(mutex_);
  const uint64_t token = next_token_++;
  auto connection = std::make_unique<HttpConnection>(std::move(socket), uid, &share_);
  const int fd = connection->socket();
  if (refused && !MakeRoomForRefusal(&entries_)) return;
  if (refused) connection->EndWith(TooManyConnections(options_.connections_max, hint));
  entries_.emplace(token, ConnectionEntry{std::move(connection), tcp, false, refused});
  const uint32_t events = (refused ? EPOLLOUT : EPOLLIN) | EPOLLONESHOT;
  if (!Arm(fd, events, token, EPOLL_CTL_ADD)) entries_.erase(token);
}

HttpConnection* HttpServer::Loop::Claim(uint64_t token) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(token);
  if (found == entries_.end() || found->second.busy) return nullptr;
  found->second.busy = true;
  return found->second.connection.get();
}

// Under the lock, so that nobody closes the socket between the two steps.
void HttpServer::Loop::GiveBack(uint64_t token, HttpConnection* connection, uint32_t events) {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(token);
  found->second.EndUse();
  if (!Arm(connection->socket(), events | EPOLLONESHOT, token, EPOLL_CTL_MOD)) {
    entries_.erase(found);
  }
}

void HttpServer::Loop::Close(uint64_t token) {
  const MutexLock lock(mutex_);
  entries_.erase(token);
}

void HttpServer::Loop::Handle(uint64_t token, HttpConnection* connection) {
  for (int served = 0;;) {
    switch (connection->Advance()) {
      case HttpConnection::State::kHasRequest:
        Serve(connection);
        // Who sends without end is ready at once, and waits behind the others.
        if (++served < kRequestsPerTurn || share_.stopping) break;
        return GiveBack(token, connection, EPOLLOUT);
      case HttpConnection::State::kWantsInput:
        if (connection->is_idle() && SpinFor(connection)) break;
        return GiveBack(token, connection, EPOLLIN);
      case HttpConnection::State::kWantsOutput:
        if (!share_.stopping) return GiveBack(token, connection, EPOLLOUT);
        connection->Drain(drain_deadline());
        return Close(token);
      case HttpConnection::State::kEnded:
        return Close(token);
    }
  }
}

// One thread at most, and only while another one is there for everybody else.
bool HttpServer::Loop::SpinFor(HttpConnection* connection) {
  if (idle_threads_ == 0 || one_spins_.exchange(true)) return false;
  const bool comes = connection->SpinForInput();
  one_spins_ = false;
  return comes && !share_.stopping;
}

void HttpServer::Loop::Serve(HttpConnection* connection) {
  HttpInterpreter::Call call = connection->request();
  // One thread stays behind for others; where there can be none, this one must not wait.
  call.may_wait = idle_threads_ > 0 || AddThread();
  call.close_after = share_.stopping;
  connection->EndRequest(interpreter_.Run(call, connection->response()));
}

void HttpServer::Loop::Sweep() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!share_.stopping) changed_.WaitUntil(lock, Clock::now() + options_.sweep_interval);
      if (share_.stopping) return;
    }
    SweepOnce();
  }
}

// Ends connections whose state has lasted too long, and joins threads that ended.
void HttpServer::Loop::SweepOnce() {
  const TimePoint now = Clock::now();
  std::vector<std::pair<uint64_t, HttpConnection*>> unfinished;
  std::list<std::jthread> ended;  // joined at the end
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_threads_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      HttpConnection& connection = *entry->second.connection;
      if (entry->second.busy || now < connection.deadline()) {
        ++entry;
      } else if (connection.is_in_request()) {
        entry->second.busy = true;
        unfinished.emplace_back(entry->first, &connection);
        ++entry;
      } else {
        entry = entries_.erase(entry);
      }
    }
    if (std::exchange(accept_pauses_, false)) {
      for (const uint64_t token : {kUnixToken, kTcpToken}) {
        const UniqueFd& listener = listeners_[token - kUnixToken];
        if (!listener.valid()) continue;
        (void)Arm(listener.get(), EPOLLIN | EPOLLONESHOT, token, EPOLL_CTL_MOD);
      }
    }
  }
  for (const auto& [token, connection] : unfinished) {
    connection->EndWith(LastResponse(RefusalResponse(Refusal::kTimeout)));
    Handle(token, connection);
  }
}

void HttpServer::Loop::Stop(TimePoint deadline) {
  std::list<std::jthread> threads;
  {
    MutexLock lock(mutex_);
    if (share_.stopping.exchange(true)) return;
    drain_deadline_ = deadline;
    interpreter_.StopStreams();
    ::eventfd_write(stop_event_.get(), 1);
    changed_.NotifyAll();
    while (running_threads_ > 0 && changed_.WaitUntil(lock, deadline)) {
    }
    for (auto& [token, entry] : entries_) entry.connection->Cut();
    threads.swap(threads_);
    threads.splice(threads.end(), ended_threads_);
  }
  threads.clear();  // joins
  if (sweeper_.joinable()) sweeper_.join();
  for (UniqueFd& listener : listeners_) listener.reset();
  if (std::exchange(unix_socket_exists_, false)) ::unlink(options_.unix_path.c_str());
  const MutexLock lock(mutex_);
  entries_.clear();
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      Handler handler) {
  auto loop = std::make_unique<Loop>(options, std::move(handler));
  RETURN_IF_ERROR(loop->Start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop)));
}

void HttpServer::Stop(TimePoint deadline) { loop_->Stop(deadline); }
int HttpServer::tcp_port() const { return loop_->tcp_port(); }
size_t HttpServer::connections() const { return loop_->connections(); }
size_t HttpServer::threads() const { return loop_->threads(); }

}  // namespace gantry::http
