#include "lib/net/name_lookup.h"

#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lib/base/mutex.h"
#include "lib/base/thread.h"

namespace gantry::net {
namespace {

constexpr milliseconds kLook{20};
constexpr int kThreadsMax = 20;

// What a thread of its own looks up, because getaddrinfo knows no deadline. Not getaddrinfo_a: the
// threads that libc makes for it are none that a sanitizer knows.
struct Request {
  explicit Request(const HostPort& name) : host(name.host), port(std::to_string(name.port)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (list != nullptr) ::freeaddrinfo(list);
  }

  const std::string host, port;
  Mutex mutex;
  Condition changed;
  bool done GUARDED_BY(mutex) = false;
  // Of the thread until it is done, then of whoever waited.
  int error = 0;
  addrinfo* list = nullptr;
};

// Also those that nobody waits for any more.
std::atomic<int> threads_now{0};

void Run(const std::shared_ptr<Request>& request) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  request->error =
      ::getaddrinfo(request->host.c_str(), request->port.c_str(), &hints, &request->list);
  threads_now.fetch_sub(1);
  const MutexLock lock(request->mutex);
  request->done = true;
  request->changed.NotifyAll();
}

Status Begin(const std::shared_ptr<Request>& request) {
  if (threads_now.fetch_add(1) >= kThreadsMax) {
    threads_now.fetch_sub(1);
    return Fail(ErrorCode::kResourceExhausted,
                "looking up '" + request->host + "': " + std::to_string(kThreadsMax) +
                    " names are being looked up, the most at once",
                "the name servers of this host do not answer, or late");
  }
  auto thread = StartThread("gantry-lookup", [request] { Run(request); });
  if (!thread) {
    threads_now.fetch_sub(1);
    return Fail(std::move(thread).error().WithContext("looking up '" + request->host + "'"));
  }
  thread->detach();
  return {};
}

tl::unexpected<Error> NoAddress(const HostPort& name, int error) {
  return Fail(ErrorCode::kPeerUnavailable,
              "'" + name.host + "' has no address: " + std::string(::gai_strerror(error)));
}

std::vector<SocketAddress> AddressesOf(const addrinfo* list) {
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    if (entry->ai_addrlen > sizeof(address.storage)) continue;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.bytes = entry->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

// The first of each family, the second of each, and so on.
std::vector<SocketAddress> InTurn(std::vector<SocketAddress> addresses) {
  const int first_family = addresses.front().family();
  const auto other = std::stable_partition(
      addresses.begin(), addresses.end(),
      [&](const SocketAddress& address) { return address.family() == first_family; });
  std::vector<SocketAddress> ordered;
  auto one = addresses.begin();
  auto two = other;
  while (one != other || two != addresses.end()) {
    if (one != other) ordered.push_back(*one++);
    if (two != addresses.end()) ordered.push_back(*two++);
  }
  ordered.resize(std::min(ordered.size(), kAddressesMax));
  return ordered;
}

// Waits for what the request's thread does.
Result<std::shared_ptr<Request>> AwaitLookup(const HostPort& name, TimePoint deadline,
                                             const Cancelled& cancelled) {
  auto request = std::make_shared<Request>(name);
  RETURN_IF_ERROR(Begin(request));
  MutexLock lock(request->mutex);
  while (!request->done) {
    const TimePoint now = Clock::now();
    if (cancelled && cancelled()) {
      return Fail(ErrorCode::kCancelled, "looking up '" + name.host + "' was stopped");
    }
    if (now >= deadline) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  "looking up '" + name.host + "': no name server answered in time");
    }
    request->changed.WaitUntil(lock, std::min(deadline, cancelled ? now + kLook : deadline));
  }
  if (request->error != 0) return NoAddress(name, request->error);
  return request;
}

}  // namespace

Result<std::vector<SocketAddress>> LookUp(const HostPort& name, TimePoint deadline,
                                          const Cancelled& cancelled) {
  if (const auto literal = ParseAddress(name)) return std::vector{*literal};
  ASSIGN_OR_RETURN(const auto request, AwaitLookup(name, deadline, cancelled));
  std::vector<SocketAddress> addresses = AddressesOf(request->list);
  if (addresses.empty()) return NoAddress(name, EAI_NONAME);
  return InTurn(std::move(addresses));
}

}  // namespace gantry::net
