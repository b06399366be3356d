#include "sidecar/transport/tcp/stream_tickets.h"

#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"

namespace gantry::transport {

Result<std::vector<std::string>> StreamTickets::Issue(const std::string& session, size_t count,
                                                      milliseconds ttl) {
  const TimePoint now = Clock::now();
  const MutexLock lock(mutex_);
  Forget(now);
  const auto held =
      static_cast<size_t>(std::count_if(tickets_.begin(), tickets_.end(), [&](const auto& entry) {
        return entry.second.session == session;
      }));
  if (count > limit_ || held > limit_ - count) {
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(held) + " tickets for tcp connections are not used yet",
                "use them, or wait until they expire");
  }
  std::vector<std::string> issued;
  issued.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    issued.push_back(RandomToken());
    tickets_.emplace(issued.back(), Ticket{session, now + ttl});
  }
  return issued;
}

Result<std::string> StreamTickets::Redeem(std::string_view ticket) {
  const MutexLock lock(mutex_);
  const auto found = tickets_.find(std::string(ticket));
  const bool valid = found != tickets_.end() && Clock::now() < found->second.expires;
  std::string session = valid ? found->second.session : "";
  if (found != tickets_.end()) tickets_.erase(found);
  if (valid) return session;
  return Fail(ErrorCode::kUnauthenticated, "the ticket is not valid, or not any more",
              "take a new one from the peer API: each opens one connection");
}

void StreamTickets::Revoke(std::string_view session) {
  const MutexLock lock(mutex_);
  std::erase_if(tickets_, [&](const auto& entry) { return entry.second.session == session; });
}

size_t StreamTickets::size() const {
  const MutexLock lock(mutex_);
  return tickets_.size();
}

void StreamTickets::Forget(TimePoint now) {
  std::erase_if(tickets_, [&](const auto& entry) { return entry.second.expires <= now; });
}

}  // namespace gantry::transport
