#include "lib/rpc/bounded_listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"

namespace gantry::rpc {
namespace {

constexpr int kBacklog = 512;
constexpr int kAcceptsPerTurn = 16;
// Between two turns that were full, so that gRPC has closed what gave way; and without descriptors.
constexpr milliseconds kPause{10};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

UniqueFd AcceptAnybody(int listener) {
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Result<UniqueFd> ListenAt(const sockaddr* address, socklen_t bytes) {
  UniqueFd listener(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "socket", errno));
  const int on = 1, off = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(listener.get(), address, bytes) == 0 && ::listen(listener.get(), kBacklog) == 0) {
    return listener;
  }
  return Fail(SystemError(ErrorCode::kInvalidArgument, "it cannot be listened on", errno));
}

uint16_t PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

// Every address of either family, where there are both.
Result<UniqueFd> ListenEverywhere(uint16_t port) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  auto both = ListenAt(reinterpret_cast<const sockaddr*>(&v6), sizeof(v6));
  if (both) return both;
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  return ListenAt(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
}

// As ServerContext::peer has it; empty for a Unix socket.
std::string PeerOf(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      address.ss_family == AF_UNIX ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  std::string name(host.data());
  if (address.ss_family == AF_INET) return "ipv4:" + name + ":" + port.data();
  constexpr std::string_view kMapped = "::ffff:";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && name.starts_with(kMapped)) {
    return "ipv4:" + name.substr(kMapped.size()) + ":" + port.data();
  }
  return "ipv6:%5B" + name + "%5D:" + port.data();
}

// For how long nothing has come over it.
milliseconds QuietFor(int socket, TimePoint accepted) {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) {
    return milliseconds(info.tcpi_last_data_recv);
  }
  return std::chrono::duration_cast<milliseconds>(Clock::now() - accepted);
}

}  // namespace

std::shared_ptr<void> KeptPeers::Keep(const std::string& peer) {
  const MutexLock lock(mutex_);
  const auto kept = peers_.insert(peer);
  return {static_cast<void*>(this), [this, kept](void*) {
            const MutexLock release(mutex_);
            peers_.erase(kept);
          }};
}

bool KeptPeers::Has(const std::string& peer) const {
  const MutexLock lock(mutex_);
  return peers_.contains(peer);
}

Result<std::unique_ptr<BoundedListener>> BoundedListener::Listen(Options options, HostPort* at) {
  std::vector<UniqueFd> listeners;
  if (at->host == "0.0.0.0" || at->host == "::") {
    ASSIGN_OR_RETURN(listeners.emplace_back(), ListenEverywhere(at->port));
    at->port = PortOf(listeners.front().get());
  } else {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(at->host.c_str(), "0", &hints, &found);
    if (error != 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "'" + at->host + "' is no address: " + ::gai_strerror(error));
    }
    const std::unique_ptr<addrinfo, FreeAddresses> list(found);
    Error why(ErrorCode::kInvalidArgument, "'" + at->host + "' has no address");
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      auto& port = each->ai_family == AF_INET6
                       ? reinterpret_cast<sockaddr_in6*>(each->ai_addr)->sin6_port
                       : reinterpret_cast<sockaddr_in*>(each->ai_addr)->sin_port;
      port = htons(at->port);
      auto listener = ListenAt(each->ai_addr, each->ai_addrlen);
      if (!listener) {
        why = listener.error();
        continue;
      }
      at->port = PortOf(listener->get());
      listeners.push_back(*std::move(listener));
    }
    if (listeners.empty()) return Fail(std::move(why));
  }
  return std::make_unique<BoundedListener>(std::move(options), std::move(listeners),
                                           &AcceptAnybody);
}

BoundedListener::BoundedListener(Options options, std::vector<UniqueFd> listeners, Accept accept)
    : options_(std::move(options)), listeners_(std::move(listeners)), accept_(std::move(accept)) {}

BoundedListener::~BoundedListener() { Stop(); }

void BoundedListener::AddTo(grpc::ServerBuilder* builder,
                            std::shared_ptr<grpc::ServerCredentials> credentials) {
  const auto count = [](milliseconds time) { return static_cast<int>(time.count()); };
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, count(options_.handshake_max));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, count(options_.idle_max));
  acceptor_ = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      std::move(credentials));
}

Status BoundedListener::Start() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) {
    return Fail(SystemError(ErrorCode::kResourceExhausted, "epoll and eventfd", errno));
  }
  epoll_event event = {};
  for (const UniqueFd& listener : listeners_) {
    event.data.fd = listener.get();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event);
  }
  event.events = EPOLLIN;
  event.data.fd = wake_.get();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
  Watch(/*listeners=*/true);
  ASSIGN_OR_RETURN(
      thread_, StartThread("gantry-accept", [this](const std::stop_token& stop) { Run(stop); }));
  return {};
}

void BoundedListener::Stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void BoundedListener::Watch(bool listeners) {
  paused_ = !listeners;
  for (const UniqueFd& listener : listeners_) {
    epoll_event event = {};
    event.events = listeners ? EPOLLIN : 0u;
    event.data.fd = listener.get();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.get(), &event);
  }
}

void BoundedListener::Run(const std::stop_token& stop) {
  std::array<epoll_event, 64> events = {};
  while (!stop.stop_requested()) {
    const int patience = paused_ ? static_cast<int>(kPause.count()) : -1;
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience);
    if (paused_) Watch(/*listeners=*/true);
    // First the ends: they make room.
    for (int i = 0; i < count; ++i) Forget(events[static_cast<size_t>(i)].data.fd);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      const bool listens = std::any_of(listeners_.begin(), listeners_.end(),
                                       [fd](const UniqueFd& each) { return each.get() == fd; });
      if (listens) TakeAll(fd);
    }
  }
}

void BoundedListener::TakeAll(int listener) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    errno = 0;
    UniqueFd socket = accept_(listener);
    if (socket.valid()) {
      Take(listener, std::move(socket));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      break;  // without a pause the loop would spin
    }
  }
  Watch(/*listeners=*/false);
}

bool BoundedListener::HasThreads() {
  const auto probe = StartThread("gantry-probe", [] {});
  if (probe) return true;
  if (const auto untold = no_thread_.Pass()) {
    log::Warning(
        "a connection was closed: there is no thread for its calls",
        {{"what", options_.what}, {"error", probe.error()}, {"more_since_the_last_line", *untold}});
  }
  return false;
}

void BoundedListener::Take(int listener, UniqueFd socket) {
  if (options_.needs_threads && !HasThreads()) return;
  if (!MakeRoom()) {
    if (const auto untold = refused_.Pass()) {
      log::Warning("a connection was turned away: all that there may be are in use",
                   {{"what", options_.what},
                    {"connections_max", options_.connections_max},
                    {"more_since_the_last_line", *untold}});
    }
    return;
  }
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // fails of a Unix socket
  UniqueFd seen_by(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!seen_by.valid()) return;
  epoll_event event = {};  // the end alone: gRPC shuts down what it closes
  event.data.fd = seen_by.get();
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, seen_by.get(), &event) != 0) return;
  const int key = seen_by.get();
  std::string peer = PeerOf(key);
  connections_.insert_or_assign(key, Connection{std::move(seen_by), std::move(peer), Clock::now()});
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
  connection.listener_fd = listener;
  connection.fd = socket.release();
  acceptor_->HandleNewConnection(&connection);
}

// While gRPC has its descriptor, epoll tells of this one after its close too, under a number that a
// new connection may have.
void BoundedListener::Forget(int fd) {
  const auto connection = connections_.find(fd);
  if (connection == connections_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  connections_.erase(connection);
}

bool BoundedListener::IsKept(const Connection& connection) const {
  const auto age = Clock::now() - connection.accepted;
  if (options_.old_ones_stay) return age > 2 * (options_.handshake_max + options_.idle_max);
  return kept_.Has(connection.peer);
}

bool BoundedListener::MakeRoom() {
  if (connections_.size() < options_.connections_max) return true;
  auto quietest = connections_.end();
  milliseconds longest{-1};
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    const milliseconds quiet = QuietFor(each->first, each->second.accepted);
    if (quiet <= longest || IsKept(each->second)) continue;
    longest = quiet;
    quietest = each;
  }
  if (quietest == connections_.end()) return false;
  ::shutdown(quietest->first, SHUT_RDWR);  // gRPC sees it, and closes its own
  Forget(quietest->first);
  if (const auto untold = gave_way_.Pass()) {
    log::Info("a connection that was quiet gave way to a new one",
              {{"what", options_.what},
               {"connections_max", options_.connections_max},
               {"quiet_ms", longest.count()},
               {"more_since_the_last_line", *untold}});
  }
  return true;
}

}  // namespace gantry::rpc
