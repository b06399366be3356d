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
      told_.push_back(
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

PeerOutcome RevokeRound::OutcomeOf(const Sessions& sessions, const Told& told,
                                   TimePoint now) const {
  const PeerOutcome ended = *told.cut_off ? PeerOutcome::kCutOff : PeerOutcome::kGone;
  const auto found = sessions.find(told.session);
  if (found == sessions.end()) return ended;
  const InitiatorSession& session = found->second;
  if (told.refused != nullptr && *told.refused) return PeerOutcome::kRefused;
  const KnownBuffers& known = session.buffers();
  if (!known.Contains(told.buffer_id) ||
      (told.revocation != 0 && known.Find(told.revocation) == nullptr)) {
    return PeerOutcome::kDrained;
  }
  return session.IsUnmapped(now, process_exit_grace_) ? ended : PeerOutcome::kHolding;
}

bool RevokeRound::Update(const Sessions& sessions, TimePoint now) {
  bool released = true;
  for (Told& told : told_) {
    PeerOutcome& outcome = told.release.outcome;
    if (outcome == PeerOutcome::kHolding) outcome = OutcomeOf(sessions, told, now);
    released = released && outcome != PeerOutcome::kHolding;
  }
  return released;
}

// A session that holds a buffer exists: Update has just seen it.
std::set<size_t> RevokeRound::ToRefuse(const Sessions& sessions, TimePoint now) const {
  std::set<size_t> late;
  for (const Told& told : told_) {
    if (told.release.outcome != PeerOutcome::kHolding) continue;
    const InitiatorSession& session = sessions.find(told.session)->second;
    const KnownBuffers::Pending* const pending = session.buffers().Find(told.revocation);
    if (pending == nullptr || session.ending()) continue;
    if (pending->refusable && now >= pending->refusal) late.insert(told.index);
  }
  return late;
}

TimePoint RevokeRound::NextChange(const Sessions& sessions) const {
  TimePoint next = TimePoint::max();
  for (const Told& told : told_) {
    if (told.release.outcome != PeerOutcome::kHolding) continue;
    const InitiatorSession& session = sessions.find(told.session)->second;
    next = std::min(next, session.UnmappedAt(process_exit_grace_));
    const KnownBuffers::Pending* const pending = session.buffers().Find(told.revocation);
    if (pending == nullptr || session.ending()) continue;
    next = std::min(next, pending->refusable ? pending->refusal : pending->cut_off);
  }
  return next;
}

RevokeRound::Releases RevokeRound::TakeReleases(size_t buffers) && {
  Releases releases(buffers);
  for (Told& told : told_) releases[told.index].push_back(std::move(told.release));
  return releases;
}

}  // namespace gantry::peer
