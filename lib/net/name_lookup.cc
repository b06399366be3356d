#include "lib/net/name_lookup.h"

#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lib/base/mutex.h"

namespace gantry::net {
namespace {

constexpr milliseconds kLook{20};

// One request to getaddrinfo_a, whose threads read and write it until it is done.
struct Request {
  explicit Request(const HostPort& name) : host(name.host), port(std::to_string(name.port)) {
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    block.ar_name = host.c_str();
    block.ar_service = port.c_str();
    block.ar_request = &hints;
  }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (block.ar_result != nullptr) ::freeaddrinfo(block.ar_result);
  }
  bool running() { return ::gai_error(&block) == EAI_INPROGRESS; }

  const std::string host, port;
  addrinfo hints = {};
  gaicb block = {};
};

// Requests that their callers no longer wait for. They are few: a request that no thread has begun
// can be cancelled, and the system has 20 threads.
class AbandonedRequests {
 public:
  void Add(std::unique_ptr<Request> request) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(requests_, [](const auto& each) { return !each->running(); });
    if (::gai_cancel(&request->block) == EAI_NOTCANCELED) requests_.push_back(std::move(request));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Request>> requests_ GUARDED_BY(mutex_);
};

AbandonedRequests& Abandoned() {
  static auto* const abandoned = new AbandonedRequests();  // threads may outlive main
  return *abandoned;
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
Result<std::unique_ptr<Request>> Ask(const HostPort& name, TimePoint deadline,
                                     const Cancelled& cancelled) {
  auto request = std::make_unique<Request>(name);
  gaicb* block = &request->block;
  if (::getaddrinfo_a(GAI_NOWAIT, &block, 1, nullptr) != 0) {
    return Fail(ErrorCode::kResourceExhausted,
                "looking up '" + name.host + "': the system has no thread for it",
                "the limit on processes (pids.max) is reached, or that on memory");
  }
  while (request->running()) {
    const TimePoint now = Clock::now();
    const bool stop = cancelled && cancelled();
    if (now >= deadline || stop) {
      Abandoned().Add(std::move(request));
      if (stop) return Fail(ErrorCode::kCancelled, "looking up '" + name.host + "' was stopped");
      return Fail(ErrorCode::kDeadlineExceeded,
                  "looking up '" + name.host + "': no name server answered in time");
    }
    const timespec wait = {0, std::min<nanoseconds>(kLook, deadline - now).count()};
    ::gai_suspend(&block, 1, &wait);
  }
  if (const int error = ::gai_error(block); error != 0) return NoAddress(name, error);
  return request;
}

}  // namespace

Result<std::vector<SocketAddress>> LookUp(const HostPort& name, TimePoint deadline,
                                          const Cancelled& cancelled) {
  if (const auto literal = ParseAddress(name)) return std::vector{*literal};
  ASSIGN_OR_RETURN(const auto request, Ask(name, deadline, cancelled));
  std::vector<SocketAddress> addresses = AddressesOf(request->block.ar_result);
  if (addresses.empty()) return NoAddress(name, EAI_NONAME);
  return InTurn(std::move(addresses));
}

}  // namespace gantry::net
