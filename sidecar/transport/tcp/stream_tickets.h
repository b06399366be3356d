// Tickets for data connections: the peer API issues them to sessions, and each opens one
// connection. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"

namespace gantry::transport {

class StreamTickets {
 public:
  explicit StreamTickets(size_t tickets_per_session_max) : limit_(tickets_per_session_max) {}

  // Returns `count` tickets of 128 random bits, or kResourceExhausted.
  Result<std::vector<std::string>> Issue(const std::string& session, size_t count, milliseconds ttl)
      EXCLUDES(mutex_);
  // Uses up the ticket and returns its session. Fails for an expired or unknown ticket.
  Result<std::string> Redeem(std::string_view ticket) EXCLUDES(mutex_);
  // Invalidates the session's unused tickets.
  void Revoke(std::string_view session) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  struct Ticket {
    std::string session;
    TimePoint expires;
  };
  void Forget(TimePoint now) REQUIRES(mutex_);

  const size_t limit_;
  mutable Mutex mutex_;
  std::unordered_map<std::string, Ticket> tickets_ GUARDED_BY(mutex_);
};

}  // namespace gantry::transport
