// The part of InitiatorTable that ends all sessions of one initiator, for those who cannot wait for
// its word.
#include <algorithm>
#include <utility>

#include "sidecar/peer/server/initiator_table.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kCutOffPoll{20};  // the grace after the end of a process wakes nobody

}  // namespace

std::vector<std::string> InitiatorTable::SessionsOf(uint64_t initiator_generation,
                                                    const std::string& shown) const {
  std::vector<std::string> sessions;
  const MutexLock lock(mutex_);
  for (const auto& [token, session] : sessions_) {
    const bool same =
        session.initiator.generation == initiator_generation && session.shown == shown;
    if (same && session.stream != nullptr && !session.ending) sessions.push_back(token);
  }
  return sessions;
}

std::vector<std::string> InitiatorTable::EndSessionsOf(uint64_t initiator_generation,
                                                       const std::string& shown) {
  std::vector<std::string> ended;
  const MutexLock lock(mutex_);
  for (auto& [token, session] : sessions_) {
    if (session.initiator.generation != initiator_generation || session.shown != shown) continue;
    ended.push_back(token);
    if (session.stream == nullptr || std::exchange(session.ending, true)) continue;
    *session.cut_off = true;
    session.stream->End();
  }
  return ended;
}

bool InitiatorTable::AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (true) {
    const TimePoint now = Clock::now();
    bool unmapped = true;
    for (const std::string& token : sessions) {
      const auto found = sessions_.find(token);
      if (found == sessions_.end()) continue;
      unmapped = unmapped && found->second.stream == nullptr && Unmapped(found->second, now);
    }
    if (unmapped || now >= deadline) return unmapped;
    changed_.WaitUntil(lock, std::min(deadline, now + kCutOffPoll));
  }
}

}  // namespace gantry::peer
