#include "sidecar/transport/tcp/target_hub.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/tcp/target_stream.h"

namespace gantry::transport {
namespace {

constexpr milliseconds kLogEvery{1'000};

}  // namespace

size_t TargetHub::CountOf(const std::string& session) const {
  return static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(),
                    [&](const auto& entry) { return entry.second.session == session; }));
}

bool TargetHub::AddUnauthenticated(const std::shared_ptr<TargetStream>& stream) {
  const MutexLock lock(mutex_);
  // Those that gave way may not have ended yet.
  if (closed_ || entries_.size() >= options.connections_max + 2 * options.unauthenticated_max) {
    ++totals.turned_away;
    return false;
  }
  MakeRoomForUnauthenticated();
  entries_.emplace(stream.get(), Entry{stream, "", ++last_number_});
  return true;
}

// One that has something to say has said it by the time that so many others came.
void TargetHub::MakeRoomForUnauthenticated() {
  size_t unauthenticated = 0;
  Entry* oldest = nullptr;
  for (auto& [key, entry] : entries_) {
    if (!entry.session.empty() || entry.ending) continue;
    ++unauthenticated;
    if (oldest == nullptr || entry.number < oldest->number) oldest = &entry;
  }
  if (unauthenticated < options.unauthenticated_max || oldest == nullptr) return;
  oldest->ending = true;
  oldest->stream->CloseSoon();
}

Result<std::string> TargetHub::Admit(TargetStream* stream, std::string_view ticket) {
  const MutexLock lock(mutex_);
  const auto entry = entries_.find(stream);
  if (closed_ || entry == entries_.end()) {
    return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
  }
  ASSIGN_OR_RETURN(std::string session, tickets.Redeem(ticket));
  if (entries_.size() - CountOf("") >= options.connections_max) {
    return Fail(ErrorCode::kResourceExhausted,
                "this sidecar has its maximum of " + std::to_string(options.connections_max) +
                    " tcp connections",
                "it is a 21st of the process's limit of descriptors (RLIMIT_NOFILE) there");
  }
  if (CountOf(session) >= options.streams_per_session_max) {
    return Fail(ErrorCode::kResourceExhausted, "the session has " +
                                                   std::to_string(options.streams_per_session_max) +
                                                   " tcp connections already");
  }
  entry->second.session = session;
  ++totals.accepted;
  return session;
}

std::shared_ptr<std::atomic<size_t>> TargetHub::AheadOf(const std::string& session) {
  const MutexLock lock(mutex_);
  std::erase_if(ahead_, [](const auto& entry) { return entry.second.expired(); });
  auto& known = ahead_[session];
  auto ahead = known.lock();
  if (ahead == nullptr) known = ahead = std::make_shared<std::atomic<size_t>>(0);
  return ahead;
}

void TargetHub::Remove(TargetStream* stream) {
  std::shared_ptr<TargetStream> removed;  // ends after the lock
  const MutexLock lock(mutex_);
  const auto found = entries_.find(stream);
  if (found == entries_.end()) return;
  removed = std::move(found->second.stream);
  if (found->second.session.empty()) ++totals.turned_away;
  entries_.erase(found);
  removed_.NotifyAll();
}

bool TargetHub::End(const std::string& session, TimePoint deadline) {
  MutexLock lock(mutex_);
  if (session.empty()) closed_ = true;
  tickets.Revoke(session);
  // Those of now: whoever issues tickets to an ended session waits for what they open himself.
  std::vector<std::shared_ptr<TargetStream>> ending;
  for (const auto& [key, entry] : entries_) {
    if (session.empty() || entry.session == session) ending.push_back(entry.stream);
  }
  for (const auto& stream : ending) stream->CloseSoon();
  const auto is_there = [&](const auto& stream)
                            REQUIRES(mutex_) { return entries_.contains(stream.get()); };
  while (std::any_of(ending.begin(), ending.end(), is_there)) {
    if (!removed_.WaitUntil(lock, deadline)) break;
  }
  return std::none_of(ending.begin(), ending.end(), is_there);
}

void TargetHub::LogEnd(const std::string& address, bool stranger, const Error& why) {
  uint64_t not_logged = 0;
  {
    const MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    if (now - last_logged_ < kLogEvery) {
      ++not_logged_;
      return;
    }
    last_logged_ = now;
    not_logged = std::exchange(not_logged_, 0);
  }
  log::Info("a tcp connection ended", {{"address", address},
                                       {"stranger", stranger},
                                       {"error", why},
                                       {"others_not_logged", not_logged}});
}

size_t TargetHub::connections() const {
  const MutexLock lock(mutex_);
  return entries_.size() - CountOf("");
}

size_t TargetHub::unauthenticated() const {
  const MutexLock lock(mutex_);
  return CountOf("");
}

}  // namespace gantry::transport
