#include "sidecar/peer/server/revoke_round.h"

#include <algorithm>
#include <utility>

namespace gantry::peer {

using registry::PeerOutcome;

void RevokeRound::SendRevocations(Sessions* sessions, const std::vector<RevokedBuffer>& buffers,
                                  TimePoint now, milliseconds time, uint64_t* last_number) {
  for (auto& [token, session] : *sessions) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!session.buffers().Contains(buffers[i].buffer_id)) continue;
      const uint64_t revocation = session.Revoke(buffers[i], now, time, last_number);
      const KnownBuffers::Pending* const pending = session.buffers().Find(revocation);
      const InitiatorSession::Facts& facts = session.facts();
      notified_.push_back(
          {token,
           buffers[i].buffer_id,
           i,
           revocation,
           session.cut_off(),
           pending == nullptr ? nullptr : pending->refused,
           {facts.initiator.name, facts.initiator.generation,
            facts.over_tcp ? wire::Path::kTcp : wire::Path::kShm, PeerOutcome::kHolding}});
    }
  }
}

PeerOutcome RevokeRound::OutcomeOf(const Sessions& sessions, const Notified& entry,
                                   TimePoint now) const {
  const PeerOutcome ended = *entry.cut_off ? PeerOutcome::kCutOff : PeerOutcome::kGone;
  const auto found = sessions.find(entry.session);
  if (found == sessions.end()) return ended;
  const InitiatorSession& session = found->second;
  if (entry.refused != nullptr && *entry.refused) return PeerOutcome::kRefused;
  const KnownBuffers& known = session.buffers();
  if (!known.Contains(entry.buffer_id) ||
      (entry.revocation != 0 && known.Find(entry.revocation) == nullptr)) {
    return PeerOutcome::kDrained;
  }
  return session.IsUnmapped(now, process_exit_grace_) ? ended : PeerOutcome::kHolding;
}

bool RevokeRound::Update(const Sessions& sessions, TimePoint now) {
  bool released = true;
  for (Notified& entry : notified_) {
    PeerOutcome& outcome = entry.release.outcome;
    if (outcome == PeerOutcome::kHolding) outcome = OutcomeOf(sessions, entry, now);
    released = released && outcome != PeerOutcome::kHolding;
  }
  return released;
}

// A session that holds a buffer exists: Update has just seen it.
std::set<size_t> RevokeRound::ToRefuse(const Sessions& sessions, TimePoint now) const {
  std::set<size_t> late;
  for (const Notified& entry : notified_) {
    if (entry.release.outcome != PeerOutcome::kHolding) continue;
    const InitiatorSession& session = sessions.find(entry.session)->second;
    const KnownBuffers::Pending* const pending = session.buffers().Find(entry.revocation);
    if (pending == nullptr || session.ending()) continue;
    if (pending->refusable && now >= pending->refusal) late.insert(entry.index);
  }
  return late;
}

TimePoint RevokeRound::NextChange(const Sessions& sessions) const {
  TimePoint next = TimePoint::max();
  for (const Notified& entry : notified_) {
    if (entry.release.outcome != PeerOutcome::kHolding) continue;
    const InitiatorSession& session = sessions.find(entry.session)->second;
    next = std::min(next, session.UnmappedAt(process_exit_grace_));
    const KnownBuffers::Pending* const pending = session.buffers().Find(entry.revocation);
    if (pending == nullptr || session.ending()) continue;
    next = std::min(next, pending->refusable ? pending->refusal : pending->cut_off);
  }
  return next;
}

RevokeRound::Releases RevokeRound::TakeReleases(size_t buffers) && {
  Releases releases(buffers);
  for (Notified& entry : notified_) releases[entry.index].push_back(std::move(entry.release));
  return releases;
}

}  // namespace gantry::peer
