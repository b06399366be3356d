#include "sidecar/peer/server/fd_tickets.h"

#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"

namespace gantry::peer {

Result<std::string> FdTickets::Issue(const std::string& session, std::vector<Entry> entries) {
  const TimePoint now = Clock::now();
  DropExpired(now);
  const MutexLock lock(mutex_);
  if (tickets_.size() >= tickets_max_) {
    return Fail(ErrorCode::kResourceExhausted, "too many descriptors are waiting to be fetched");
  }
  std::string ticket = RandomToken();
  tickets_[ticket] = {session, now + ttl_, std::move(entries)};
  return ticket;
}

Result<std::vector<std::shared_ptr<const UniqueFd>>> FdTickets::Redeem(const std::string& session,
                                                                       std::string_view ticket) {
  Ticket found;
  {
    const MutexLock lock(mutex_);
    const auto entry = tickets_.find(ticket);
    if (entry == tickets_.end()) {
      return Fail(ErrorCode::kUnauthenticated, "the ticket is unknown, used or withdrawn");
    }
    found = std::move(entry->second);
    tickets_.erase(entry);
  }
  if (found.session != session) {
    return Fail(ErrorCode::kUnauthenticated, "the ticket belongs to another session");
  }
  if (found.expires < Clock::now()) {
    return Fail(ErrorCode::kUnauthenticated, "the ticket has expired", "ask for a new one");
  }
  std::vector<std::shared_ptr<const UniqueFd>> fds;
  for (Entry& entry : found.entries) fds.push_back(std::move(entry.fd));
  return fds;
}

void FdTickets::DropBuffer(std::string_view buffer_id) {
  const MutexLock lock(mutex_);
  std::erase_if(tickets_, [&](const auto& ticket) {
    return std::any_of(ticket.second.entries.begin(), ticket.second.entries.end(),
                       [&](const Entry& entry) { return entry.buffer_id == buffer_id; });
  });
}

void FdTickets::DropSession(std::string_view session) {
  const MutexLock lock(mutex_);
  std::erase_if(tickets_, [&](const auto& ticket) { return ticket.second.session == session; });
}

void FdTickets::DropExpired(TimePoint now) {
  const MutexLock lock(mutex_);
  std::erase_if(tickets_, [&](const auto& ticket) { return ticket.second.expires < now; });
}

size_t FdTickets::size() const {
  const MutexLock lock(mutex_);
  return tickets_.size();
}

}  // namespace gantry::peer
