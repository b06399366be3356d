#include "sidecar/peer/server/initiator_table.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/random_id.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kRevocationMax{3'600'000};
constexpr milliseconds kCutOffPoll{20};  // the grace after the end of a process wakes nobody

tl::unexpected<Error> NoSession() {
  return Fail(ErrorCode::kStaleGeneration, "this sidecar does not know the session",
              "open a new one with Watch: the sidecar restarted, or the stream broke");
}

milliseconds Remaining(TimePoint deadline, TimePoint now) {
  if (deadline <= now) return milliseconds{0};
  return std::min(kRevocationMax, std::chrono::duration_cast<milliseconds>(deadline - now));
}

bool IsOf(const InitiatorSession& session, uint64_t initiator_generation,
          const std::string& verified_identity) {
  const InitiatorSession::Facts& facts = session.facts();
  return facts.initiator.generation == initiator_generation &&
         facts.verified_identity == verified_identity;
}

void ReportLate(const InitiatorTable::OnLateInitiator& told, const InitiatorSession& session,
                const std::vector<RevokedBuffer>& buffers, registry::PeerOutcome outcome) {
  const wire::PeerIdentity& initiator = session.facts().initiator;
  for (const RevokedBuffer& buffer : buffers) {
    log::Warning(
        "a peer did not let go of a buffer in time",
        {{"peer", initiator.name}, {"buffer", buffer.buffer_id}, {"outcome", NameOf(outcome)}});
    if (notified != nullptr) told(initiator, buffer, outcome);
  }
}

}  // namespace

InitiatorTable::InitiatorTable(size_t sessions_max, milliseconds lease_ticket_ttl,
                               milliseconds process_exit_grace, OnLateInitiator on_late)
    : sessions_max_(sessions_max),
      lease_ticket_ttl_(lease_ticket_ttl),
      process_exit_grace_(process_exit_grace),
      on_late_(std::move(on_late)) {}

Result<InitiatorTable::Opened> InitiatorTable::Open(const wire::PeerIdentity& initiator,
                                                    const std::string& verified_identity,
                                                    bool over_tcp, InitiatorStream* stream) {
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
  sessions_.try_emplace(opened.session,
                        InitiatorSession::Facts{initiator, verified_identity, over_tcp,
                                                opened.lease_ticket, now + lease_ticket_ttl_},
                        stream);
  if (!over_tcp) awaited_[opened.lease_ticket] = opened.session;
  return opened;
}

void InitiatorTable::Ending(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.SetEnding();
  }
}

void InitiatorTable::StreamEnded(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.SetStreamEnded();
    if (found->second.IsOver(Clock::now(), process_exit_grace_)) {
      awaited_.erase(found->second.facts().lease_ticket);
      sessions_.erase(found);
    }
  }
  changed_.NotifyAll();
}

Result<std::string> InitiatorTable::AttachLease(std::string_view lease_ticket) {
  const MutexLock lock(mutex_);
  if (const auto awaited = awaited_.find(lease_ticket); awaited != awaited_.end()) {
    const std::string token = std::move(awaited->second);
    awaited_.erase(awaited);
    if (sessions_.find(token)->second.OpenLease(Clock::now())) return token;
  }
  return Fail(ErrorCode::kUnauthenticated, "the lease ticket is unknown, used or expired");
}

void InitiatorTable::LeaseEnded(const std::string& session) {
  const MutexLock lock(mutex_);
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    found->second.EndLease(Clock::now());
  }
  changed_.NotifyAll();
}

Result<wire::PeerIdentity> InitiatorTable::InitiatorOf(const std::string& session,
                                                       bool over_tcp) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !found->second.is_open() ||
      found->second.facts().over_tcp != over_tcp) {
    return NoSession();
  }
  return found->second.facts().initiator;
}

Result<uint64_t> InitiatorTable::BeginDescribe(const std::string& session,
                                               const std::string& buffer_id) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(InitiatorSession * found, Find(session));
  found->buffers().BeginDescribe(buffer_id, ++last_number_);
  return last_number_;
}

void InitiatorTable::CommitDescribe(const std::string& session, const std::string& buffer_id,
                                    uint64_t description, wire::Access access) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found != sessions_.end())
    found->second.buffers().CommitDescribe(buffer_id, description, access);
}

void InitiatorTable::AbortDescribe(const std::string& session, const std::string& buffer_id,
                                   uint64_t description) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  found->second.buffers().AbortDescribe(buffer_id, description);
  changed_.NotifyAll();
}

Status InitiatorTable::CheckMayConnect(const std::string& session) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.stream() == nullptr) return NoSession();
  if (found->second.has_lease()) return {};
  if (found->second.facts().over_tcp) {
    return Fail(ErrorCode::kPathUnavailable, "descriptors are not handed out over TCP",
                "a peer on the same node gets them through the node directory");
  }
  return Fail(ErrorCode::kPermissionDenied, "the session has no lease connection",
              "present the lease ticket at the descriptor socket first, and keep the connection");
}

bool InitiatorTable::IsDescribed(const std::string& session, const std::string& buffer_id) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.buffers().IsKept(buffer_id);
}

Result<wire::Access> InitiatorTable::AccessOf(std::string_view session,
                                              std::string_view buffer_id) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !found->second.is_open()) {
    return Fail(ErrorCode::kPeerLost, "the session with this sidecar is over",
                "the peer opens another one by itself");
  }
  return found->second.buffers().AccessOf(buffer_id);
}

InitiatorTable::Releases InitiatorTable::Revoke(const std::vector<Revoked>& buffers,
                                                TimePoint deadline) {
  RevokeRound round(process_exit_grace_);
  {
    const MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    round.SendRevocations(&sessions_, buffers, now, Remaining(deadline, now), &last_number_);
  }
  while (true) {
    const std::set<size_t> late = AwaitReleased(&round, deadline);
    if (late.empty()) return std::move(round).TakeReleases(buffers.size());
    for (const size_t index : late) Refuse(buffers[index]);
  }
}

std::set<size_t> InitiatorTable::AwaitReleased(RevokeRound* round, TimePoint deadline) {
  MutexLock lock(mutex_);
  while (true) {
    const TimePoint now = Clock::now();
    CutOffLate(now);
    if (round->Update(sessions_, now) || shutting_down_) return {};
    std::set<size_t> late = round->ToRefuse(sessions_, now);
    if (!late.empty() || now >= deadline) return late;
    changed_.WaitUntil(lock, std::min(deadline, round->NextChange(sessions_)));
  }
}

void InitiatorTable::Refuse(const Revoked& buffer) {
  const bool refused = buffer.refuse_to_peers();
  const MutexLock lock(mutex_);
  const TimePoint now = Clock::now();
  for (auto& [token, session] : sessions_) {
    if (!session.is_open()) continue;
    ReportLate(on_late_, session, session.buffers().SettleRefusals(buffer.buffer_id, refused, now),
               registry::PeerOutcome::kRefused);
  }
  changed_.NotifyAll();
}

Status InitiatorTable::Acknowledge(const std::string& session,
                                   const std::vector<uint64_t>& revocations) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(InitiatorSession * found, Find(session));
  for (const uint64_t revocation : revocations) found->buffers().Acknowledge(revocation);
  changed_.NotifyAll();
  return {};
}

std::vector<std::string> InitiatorTable::SessionsOf(uint64_t initiator_generation,
                                                    const std::string& verified_identity) const {
  std::vector<std::string> sessions;
  const MutexLock lock(mutex_);
  for (const auto& [token, session] : sessions_) {
    if (session.is_open() && IsOf(session, initiator_generation, verified_identity))
      sessions.push_back(token);
  }
  return sessions;
}

std::vector<std::string> InitiatorTable::EndSessionsOf(uint64_t initiator_generation,
                                                       const std::string& verified_identity) {
  std::vector<std::string> ended;
  const MutexLock lock(mutex_);
  for (auto& [token, session] : sessions_) {
    if (!IsOf(session, initiator_generation, verified_identity)) continue;
    ended.push_back(token);
    session.CutOff();
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
      unmapped = unmapped && found->second.IsOver(now, process_exit_grace_);
    }
    if (unmapped || now >= deadline) return unmapped;
    changed_.WaitUntil(lock, std::min(deadline, now + kCutOffPoll));
  }
}

void InitiatorTable::Tick(TimePoint now) {
  const MutexLock lock(mutex_);
  Prune(now);
  CutOffLate(now);
  for (auto& [token, session] : sessions_) {
    if (session.stream() != nullptr) session.stream()->PushHeartbeat();
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
    if (session.stream() != nullptr) session.stream()->PushShutdown(deadline);
  }
}

size_t InitiatorTable::size() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [](const auto& entry) { return entry.second.stream() != nullptr; }));
}

void InitiatorTable::Prune(TimePoint now) {
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (!it->second.IsOver(now, process_exit_grace_)) {
      ++it;
      continue;
    }
    awaited_.erase(it->second.facts().lease_ticket);
    it = sessions_.erase(it);
  }
}

void InitiatorTable::CutOffLate(TimePoint now) {
  for (auto& [token, session] : sessions_) {
    if (!session.is_open() || !session.buffers().IsLate(now)) continue;
    session.CutOff();
    ReportLate(on_late_, session, session.buffers().NotRefused(), registry::PeerOutcome::kCutOff);
  }
}

Result<InitiatorSession*> InitiatorTable::Find(std::string_view session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || !found->second.is_open()) return NoSession();
  return &found->second;
}

}  // namespace gantry::peer
