// The part of InitiatorTable that takes buffers back: tells those who know them, waits, and refuses
// them to those who do not let go.
#include <algorithm>
#include <utility>

#include "sidecar/peer/server/initiator_table.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kRevocationMax{3'600'000};

milliseconds Remaining(TimePoint deadline, TimePoint now) {
  if (deadline <= now) return milliseconds{0};
  return std::min(kRevocationMax, std::chrono::duration_cast<milliseconds>(deadline - now));
}

}  // namespace

InitiatorTable::Releases InitiatorTable::Revoke(const std::vector<Revoked>& buffers,
                                                TimePoint deadline) {
  std::vector<Told> told = TellAll(buffers, deadline);
  std::set<size_t> late;
  while (!AwaitReleased(&told, deadline, &late)) {
    for (const size_t index : late) Refuse(buffers[index]);
  }
  Releases releases(buffers.size());
  for (Told& entry : told) releases[entry.index].push_back(std::move(entry.release));
  return releases;
}

std::vector<InitiatorTable::Told> InitiatorTable::TellAll(const std::vector<Revoked>& buffers,
                                                          TimePoint deadline) {
  const MutexLock lock(mutex_);
  const TimePoint begin = Clock::now();
  const milliseconds time = Remaining(deadline, begin);
  std::vector<Told> told;
  for (auto& [token, session] : sessions_) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!session.buffers.contains(buffers[i].buffer_id)) continue;
      const uint64_t revocation = Tell(&session, buffers[i], begin, time);
      const auto pending = session.pending.find(revocation);
      told.push_back({token,
                      buffers[i].buffer_id,
                      i,
                      revocation,
                      session.cut_off,
                      pending == session.pending.end() ? nullptr : pending->second.refused,
                      {session.initiator.name, session.initiator.generation,
                       session.over_tcp ? wire::Path::kTcp : wire::Path::kShm,
                       registry::PeerOutcome::kHolding}});
    }
  }
  return told;
}

bool InitiatorTable::AwaitReleased(std::vector<Told>* told, TimePoint deadline,
                                   std::set<size_t>* late) {
  MutexLock lock(mutex_);
  for (;;) {
    const TimePoint now = Clock::now();
    CutOff(now);
    if (Settle(told, now) || shutting_down_) return true;
    late->clear();
    for (const Told& entry : *told) {
      const auto session = sessions_.find(entry.session);
      if (entry.release.outcome != registry::PeerOutcome::kHolding || session->second.ending) {
        continue;
      }
      const auto pending = session->second.pending.find(entry.revocation);
      if (pending != session->second.pending.end() && pending->second.refusable &&
          now >= pending->second.refusal) {
        late->insert(entry.index);
      }
    }
    if (!late->empty()) return false;
    if (now >= deadline) return true;
    changed_.WaitUntil(lock, std::min(deadline, NextChange(*told)));
  }
}

void InitiatorTable::Refuse(const Revoked& buffer) {
  const bool refused = buffer.refuse_to_peers();
  const MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  for (auto& [token, session] : sessions_) {
    if (session.stream == nullptr || session.ending) continue;
    for (auto& [revocation, pending] : session.pending) {
      if (pending.buffer.buffer_id != buffer.buffer_id || !pending.refusable ||
          now < pending.refusal) {
        continue;
      }
      pending.refusable = false;
      if (refused) {
        *pending.refused = true;
        Announce(session, pending.buffer, registry::PeerOutcome::kRefused);
      } else {
        pending.cut_off = now;
      }
    }
  }
  changed_.NotifyAll();
}

}  // namespace gantry::peer
