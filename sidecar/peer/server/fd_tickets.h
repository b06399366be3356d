// Tickets for descriptors: unguessable, single-use and short-lived. A ticket is valid for one
// session and the allocations that it was issued for. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"

namespace gantry::peer {

class FdTickets {
 public:
  struct Entry {
    std::string buffer_id;
    std::shared_ptr<const UniqueFd> fd;
  };

  FdTickets(size_t tickets_max, milliseconds ttl) : tickets_max_(tickets_max), ttl_(ttl) {}

  // REQUIRES entries.size() <= kFdsPerMessageMax.
  Result<std::string> Issue(const std::string& session, std::vector<Entry> entries)
      EXCLUDES(mutex_);
  // Invalidates the ticket, also when another session presents it.
  Result<std::vector<std::shared_ptr<const UniqueFd>>> Redeem(const std::string& session,
                                                              std::string_view ticket)
      EXCLUDES(mutex_);
  void DropBuffer(std::string_view buffer_id) EXCLUDES(mutex_);
  void DropSession(std::string_view session) EXCLUDES(mutex_);
  void DropExpired(TimePoint now) EXCLUDES(mutex_);
  size_t size() const EXCLUDES(mutex_);

 private:
  struct Ticket {
    std::string session;
    TimePoint expires;
    std::vector<Entry> entries;
  };

  const size_t tickets_max_;
  const milliseconds ttl_;

  mutable Mutex mutex_;
  std::map<std::string, Ticket, std::less<>> tickets_ GUARDED_BY(mutex_);
};

}  // namespace gantry::peer
