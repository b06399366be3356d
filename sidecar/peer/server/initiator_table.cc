#include "sidecar/peer/server/initiator_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/random_id.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kCutOffTime{500};
// What an idle initiator over TCP needs to say that it let go: to cut it off costs it what it does
// with other buffers.
constexpr milliseconds kLetGoTime{250};
// For whoever calls Revoke again to have it refused.
constexpr milliseconds kRefusalTime{1'000};

tl::unexpected<Error> NoSession() {
  return Fail(ErrorCode::kStaleGeneration, "this sidecar does not know the session",
              "open a new one with Watch: the sidecar restarted, or the stream broke");
}

}  // namespace

InitiatorTable::InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                               milliseconds process_exit_grace, ToldOfLate told)
    : sessions_max_(sessions_max),
      lease_ticket_ttl_(lease_ticket_ttl),
      process_exit_grace_(process_exit_grace),
      told_of_late_(std::move(told)) {}

Result<InitiatorTable::Opened> InitiatorTable::Open(const wire::PeerIdentity& initiator,
                                                    const std::string& shown, bool over_tcp,
                                                    InitiatorStream* stream) {
  const MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  if (shutting_down_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
  if (sessions_.size() >= sessions_max_) Prune(now);
  if (sessions_.size() >= sessions_max_) {
    return Fail(ErrorCode::kResourceExhausted,
                "this sidecar has its maximum of " + std::to_string(sessions_max_) + " peers",
                "it is a 64th of the process's limit of descriptors (RLIMIT_NOFILE) there");
  }
  Opened opened = {RandomToken(), over_tcp ? std::string() : RandomToken()};
  Session& session = sessions_[opened.session];
  session.initiator = initiator;
  session.shown = shown;
  session.over_tcp = over_tcp;
  session.stream = stream;
  session.lease_ticket = opened.lease_ticket;
  session.lease_ticket_expires = now + lease_ticket_ttl_;
  if (!over_tcp) awaited_[opened.lease_ticket] = opened.session;
  return opened;
}

void InitiatorTable::Ending(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.ending = true;
  }
}

void InitiatorTable::StreamEnded(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.stream = nullptr;
    EraseIfOver(found, Clock::now());
  }
  changed_.NotifyAll();
}

Result<std::string> InitiatorTable::AttachLease(std::string_view lease_ticket) {
  const MutexLock lock(mutex_);
  if (const auto awaited = awaited_.find(lease_ticket); awaited != awaited_.end()) {
    const std::string token = std::move(awaited->second);
    awaited_.erase(awaited);
    Session& session = sessions_.find(token)->second;
    session.lease_ticket.clear();
    if (session.lease_ticket_expires >= Clock::now() && session.stream != nullptr) {
      session.lease = Lease::kOpen;
      return token;
    }
  }
  return Fail(ErrorCode::kUnauthenticated, "the lease ticket is unknown, used or expired");
}

void InitiatorTable::LeaseEnded(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.lease = Lease::kEnded;
    found->second.lease_ended = Clock::now();
    if (found->second.stream != nullptr) found->second.stream->End();
  }
  changed_.NotifyAll();
}

Result<wire::PeerIdentity> InitiatorTable::InitiatorOf(const std::string& session,
                                                       bool over_tcp) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.stream == nullptr || found->second.ending ||
      found->second.over_tcp != over_tcp) {
    return NoSession();
  }
  return found->second.initiator;
}

Result<uint64_t> InitiatorTable::Mark(const std::string& session, const std::string& buffer_id) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Session * found, Find(session));
  found->buffers[buffer_id].asked.insert(++last_number_);
  return last_number_;
}

void InitiatorTable::Keep(const std::string& session, const std::string& buffer_id, uint64_t mark,
                          wire::Access access) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  Marks& marks = found->second.buffers[buffer_id];
  marks.asked.erase(mark);
  marks.kept = std::max(marks.kept, mark);
  marks.access = access;
}

void InitiatorTable::Unmark(const std::string& session, const std::string& buffer_id,
                            uint64_t mark) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.buffers[buffer_id].asked.erase(mark);
  EraseIfUnknown(&found->second, buffer_id);
  changed_.NotifyAll();
}

void InitiatorTable::EraseIfUnknown(Session* session, const std::string& buffer_id) {
  const auto found = session->buffers.find(buffer_id);
  if (found == session->buffers.end()) return;
  if (found->second.kept == 0 && found->second.asked.empty()) session->buffers.erase(found);
}

Status InitiatorTable::CheckMayConnect(const std::string& session) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.stream == nullptr) return NoSession();
  if (found->second.lease == Lease::kOpen) return {};
  if (found->second.over_tcp) {
    return Fail(ErrorCode::kPathUnavailable, "descriptors are not handed out over TCP",
                "a peer on the same node gets them through the node directory");
  }
  return Fail(ErrorCode::kPermissionDenied, "the session has no lease connection",
              "present the lease ticket at the descriptor socket first, and keep the connection");
}

bool InitiatorTable::IsMarked(const std::string& session, const std::string& buffer_id) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return false;
  const auto marks = found->second.buffers.find(buffer_id);
  return marks != found->second.buffers.end() && marks->second.kept != 0;
}

Result<wire::Access> InitiatorTable::AccessOf(std::string_view session,
                                              std::string_view buffer_id) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.stream == nullptr || found->second.ending) {
    return Fail(ErrorCode::kPeerLost, "the session with this sidecar is over",
                "the peer opens another one by itself");
  }
  const auto marks = found->second.buffers.find(buffer_id);
  if (marks == found->second.buffers.end() || marks->second.kept == 0) return wire::Access{};
  // What began before it was taken back may go on there until the peer says that it does not.
  for (const auto& [revocation, pending] : found->second.pending) {
    if (*pending.refused && pending.buffer.buffer_id == buffer_id) return wire::Access{};
  }
  return marks->second.access;
}

uint64_t InitiatorTable::Tell(Session* session, const Revoked& buffer, TimePoint now,
                              milliseconds time) {
  if (session->stream == nullptr) return 0;
  Marks& marks = session->buffers[buffer.buffer_id];
  const uint64_t newest =
      marks.asked.empty() ? marks.kept : std::max(marks.kept, *marks.asked.rbegin());
  if (newest < marks.revoked && session->pending.contains(marks.revoked)) return marks.revoked;
  marks.revoked = ++last_number_;
  // Over TCP what is left is for closing the session's data connections.
  if (session->over_tcp) time = std::max(kLetGoTime, time - std::min(time / 4, kCutOffTime));
  Pending& pending = session->pending[marks.revoked];
  pending.buffer = buffer;
  pending.buffer.refuse_to_peers = nullptr;
  pending.refusal = pending.cut_off = session->over_tcp ? now + time : TimePoint::max();
  if (session->over_tcp && buffer.refuse_to_peers != nullptr) {
    pending.refusable = true;
    pending.cut_off += kRefusalTime;
  }
  const auto deadline_ms = static_cast<uint32_t>(time.count());
  session->stream->PushRevocation({marks.revoked, buffer.buffer_id, buffer.buffer_generation,
                                   deadline_ms / 4 * 3, deadline_ms, buffer.suspended});
  return marks.revoked;
}

Status InitiatorTable::Acknowledge(const std::string& session,
                                   const std::vector<uint64_t>& revocations) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Session * found, Find(session));
  for (const uint64_t revocation : revocations) {
    const auto pending = found->pending.find(revocation);
    if (pending == found->pending.end()) continue;
    if (const auto marks = found->buffers.find(pending->second.buffer.buffer_id);
        marks != found->buffers.end()) {
      if (marks->second.kept < revocation) marks->second.kept = 0;
      EraseIfUnknown(found, pending->second.buffer.buffer_id);
    }
    found->pending.erase(pending);
  }
  changed_.NotifyAll();
  return {};
}

void InitiatorTable::Tick(TimePoint now) {
  const MutexLock lock(mutex_);
  Prune(now);
  CutOff(now);
  for (auto& [token, session] : sessions_) {
    if (session.stream != nullptr) session.stream->PushHeartbeat();
  }
}

void InitiatorTable::Close() {
  const MutexLock lock(mutex_);
  shutting_down_ = true;
  changed_.NotifyAll();
}

void InitiatorTable::ShutDown(milliseconds deadline) {
  Close();
  const MutexLock lock(mutex_);
  for (auto& [token, session] : sessions_) {
    if (session.stream != nullptr) session.stream->PushShutdown(deadline);
  }
}

size_t InitiatorTable::size() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [](const auto& entry) { return entry.second.stream != nullptr; }));
}

// Descriptors are handed over through an open lease connection alone, so before it was opened
// nothing can be mapped.
bool InitiatorTable::Unmapped(const Session& session, TimePoint now) const {
  if (session.over_tcp) return session.stream == nullptr;
  if (session.lease == Lease::kAwaited) return true;
  return session.lease == Lease::kEnded && now >= session.lease_ended + process_exit_grace_;
}

void InitiatorTable::Prune(TimePoint now) {
  for (auto it = sessions_.begin(); it != sessions_.end();) it = EraseIfOver(it, now);
}

InitiatorTable::Sessions::iterator InitiatorTable::EraseIfOver(Sessions::iterator it,
                                                               TimePoint now) {
  if (it->second.stream != nullptr || !Unmapped(it->second, now)) return std::next(it);
  awaited_.erase(it->second.lease_ticket);
  return sessions_.erase(it);
}

void InitiatorTable::CutOff(TimePoint now) {
  for (auto& [token, session] : sessions_) {
    if (session.stream == nullptr || session.ending) continue;
    const bool late = std::any_of(session.pending.begin(), session.pending.end(), [&](auto& entry) {
      return !*entry.second.refused && now >= entry.second.cut_off;
    });
    if (!late) continue;
    session.ending = true;
    *session.cut_off = true;
    session.stream->End();
    for (const auto& [revocation, pending] : session.pending) {
      if (!*pending.refused) Announce(session, pending.buffer, registry::PeerOutcome::kCutOff);
    }
  }
}

void InitiatorTable::Announce(const Session& session, const Revoked& buffer,
                              registry::PeerOutcome outcome) const {
  log::Warning("a peer did not let go of a buffer in time", {{"peer", session.initiator.name},
                                                             {"buffer", buffer.buffer_id},
                                                             {"outcome", NameOf(outcome)}});
  if (told_of_late_ != nullptr) told_of_late_(session.initiator, buffer, outcome);
}

Result<InitiatorTable::Session*> InitiatorTable::Find(const std::string& session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.stream == nullptr || found->second.ending) {
    return NoSession();
  }
  return &found->second;
}

registry::PeerOutcome InitiatorTable::OutcomeOf(const Told& told, TimePoint now) const {
  const auto ended = *told.cut_off ? registry::PeerOutcome::kCutOff : registry::PeerOutcome::kGone;
  const auto found = sessions_.find(told.session);
  if (found == sessions_.end()) return ended;
  const Session& session = found->second;
  if (told.refused != nullptr && *told.refused) return registry::PeerOutcome::kRefused;
  if (!session.buffers.contains(told.buffer_id) ||
      (told.revocation != 0 && !session.pending.contains(told.revocation))) {
    return registry::PeerOutcome::kDrained;
  }
  return Unmapped(session, now) ? ended : registry::PeerOutcome::kHolding;
}

bool InitiatorTable::Settle(std::vector<Told>* told, TimePoint now) const {
  bool settled = true;
  for (Told& entry : *told) {
    registry::PeerOutcome& outcome = entry.release.outcome;
    if (outcome == registry::PeerOutcome::kHolding) outcome = OutcomeOf(entry, now);
    settled = settled && outcome != registry::PeerOutcome::kHolding;
  }
  return settled;
}

TimePoint InitiatorTable::NextChange(const std::vector<Told>& told) const {
  TimePoint next = TimePoint::max();
  for (const Told& entry : told) {
    if (entry.release.outcome != registry::PeerOutcome::kHolding) continue;
    const Session& session = sessions_.find(entry.session)->second;
    if (session.lease == Lease::kEnded) {
      next = std::min(next, session.lease_ended + process_exit_grace_);
    }
    const auto pending = session.pending.find(entry.revocation);
    if (pending != session.pending.end() && !session.ending) {
      const bool refusable = pending->second.refusable;
      next = std::min(next, refusable ? pending->second.refusal : pending->second.cut_off);
    }
  }
  return next;
}

}  // namespace gantry::peer
