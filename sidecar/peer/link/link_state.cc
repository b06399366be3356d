#include "sidecar/peer/link/link_state.h"

#include <algorithm>
#include <utility>

#include "lib/base/random_id.h"

namespace gantry::peer {
namespace {

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

LinkState::LinkState(const std::string& name, const std::string& address) {
  const MutexLock lock(mutex_);
  info_.name = name;
  info_.address = address;
  SetState(engine::PeerState::kConnecting);
}

uint64_t LinkState::BeginOpening() {
  const MutexLock lock(mutex_);
  ended_.reset();
  last_heard_ = Clock::now();
  return ++last_session_;
}

bool LinkState::SetOpening(std::shared_ptr<PeerClient> client) {
  const MutexLock lock(mutex_);
  const bool go_on = !closing_ && !stopping_;
  opening_ = go_on ? std::move(client) : nullptr;
  return go_on;
}

void LinkState::FailOpening(Error why) {
  const MutexLock lock(mutex_);
  info_.error = std::move(why);
  changed_.NotifyAll();
}

void LinkState::SetUp(std::shared_ptr<PeerSession> session) {
  const PeerClient::Facts& facts = session->facts();
  const MutexLock lock(mutex_);
  info_.generation = facts.owner.generation;
  info_.node_id = facts.owner.node_id;
  info_.version = facts.owner.build;
  info_.rtt_us = facts.rtt_us;
  info_.paths = session->PathReports();
  info_.error.reset();
  session_ = std::move(session);
  SetState(engine::PeerState::kUp);
  changed_.NotifyAll();
}

void LinkState::SetDown(const Error& why) {
  const MutexLock lock(mutex_);
  session_ = nullptr;
  info_.error = why;
  went_down_ = Clock::now();
  SetState(engine::PeerState::kDown);
  changed_.NotifyAll();
}

std::optional<Error> LinkState::ReasonToEnd(milliseconds silence_max) const {
  const MutexLock lock(mutex_);
  if (session_ == nullptr) return {};
  const std::string peer = "peer '" + info_.name + "'";
  if (closing_) return Error(ErrorCode::kPeerLost, peer + " was removed");
  if (ended_) return Error(ErrorCode::kPeerLost, peer + " is gone: " + ended_->message);
  const milliseconds silence = std::max(silence_max, 3 * session_->facts().heartbeat);
  if (Clock::now() - last_heard_ < silence) return {};
  return Error(ErrorCode::kPeerLost,
               peer + " said nothing for " + std::to_string(silence.count()) + " ms");
}

void LinkState::SetClosed() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

bool LinkState::Hear(uint64_t session) {
  const MutexLock lock(mutex_);
  if (session != last_session_) return false;
  last_heard_ = Clock::now();
  return true;
}

void LinkState::HearEnd(uint64_t session, const Error& why) {
  const MutexLock lock(mutex_);
  if (session == last_session_ && !ended_) ended_ = why;
}

void LinkState::Close() {
  std::shared_ptr<PeerClient> ending;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    ending = session_ != nullptr ? session_->client() : opening_;
    changed_.NotifyAll();
  }
  if (ending != nullptr) ending->Break();  // the link's thread may be in a call of it
}

void LinkState::StopWaiting() {
  std::shared_ptr<PeerClient> opening, up;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    opening = opening_;
    if (session_ != nullptr) up = session_->client();
    changed_.NotifyAll();
  }
  if (opening != nullptr) opening->Break();
  if (up != nullptr) up->StopFetching();
}

bool LinkState::closing() const {
  const MutexLock lock(mutex_);
  return closing_;
}

bool LinkState::stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

std::shared_ptr<PeerSession> LinkState::session() const {
  const MutexLock lock(mutex_);
  return session_;
}

bool LinkState::IsUsable(const PeerSession& session) const {
  const MutexLock lock(mutex_);
  return session_.get() == &session && !ended_;
}

bool LinkState::IsProvenBy(const std::vector<std::string>& proofs) const {
  const MutexLock lock(mutex_);
  if (session_ == nullptr || ended_) return false;
  const std::string own = session_->client()->Proof();
  return std::any_of(proofs.begin(), proofs.end(),
                     [&](const std::string& proof) { return EqualSecrets(proof, own); });
}

engine::PeerInfo LinkState::Info() const {
  engine::PeerInfo info;
  std::shared_ptr<PeerSession> session;
  {
    const MutexLock lock(mutex_);
    info = info_;
    session = session_;
  }
  for (wire::PathReport& report : info.paths) {
    if (!report.available) continue;
    const Status works = session == nullptr
                             ? Fail(ErrorCode::kPeerUnavailable, "the peer is not up")
                             : session->CheckPath(report.path);
    if (!works) report = {report.path, false, works.error().message};
  }
  const auto fastest = std::find_if(info.paths.begin(), info.paths.end(),
                                    [](const auto& report) { return report.available; });
  info.path.reset();
  if (fastest != info.paths.end()) info.path = fastest->path;
  return info;
}

Error LinkState::NotUp() const {
  const MutexLock lock(mutex_);
  return NotUpLocked();
}

Result<std::shared_ptr<PeerClient>> LinkState::AwaitClient(TimePoint deadline,
                                                           std::optional<milliseconds> down_max) {
  MutexLock lock(mutex_);
  while (true) {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (closing_) return Fail(ErrorCode::kPeerLost, "peer '" + info_.name + "' was removed");
    if (session_ != nullptr && !ended_) return session_->client();
    TimePoint until = deadline;
    if (down_max && session_ == nullptr) until = std::min(until, went_down_ + *down_max);
    if (changed_.WaitUntil(lock, until)) continue;
    Error why = NotUpLocked();
    why.code = until < deadline ? ErrorCode::kPeerLost : ErrorCode::kDeadlineExceeded;
    return Fail(std::move(why));
  }
}

void LinkState::AwaitReturn(TimePoint deadline, milliseconds down_wait) {
  MutexLock lock(mutex_);
  const TimePoint soon = (session_ == nullptr ? went_down_ : Clock::now()) + down_wait;
  while ((session_ == nullptr || ended_) && !closing_ && !stopping_) {
    if (!changed_.WaitUntil(lock, std::min(deadline, soon))) return;
  }
}

Status LinkState::AwaitUp(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (session_ == nullptr && !closing_) {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (!changed_.WaitUntil(lock, deadline)) break;
  }
  return {};
}

bool LinkState::AwaitClosed(TimePoint deadline, bool until_stop) {
  MutexLock lock(mutex_);
  while (!closed_ && !(until_stop && stopping_) && changed_.WaitUntil(lock, deadline)) {
  }
  return closed_;
}

void LinkState::AwaitChange(TimePoint deadline) {
  MutexLock lock(mutex_);
  changed_.WaitUntil(lock, deadline);
}

void LinkState::SetState(engine::PeerState state) {
  info_.state = state;
  info_.since_unix_ms = UnixMilliseconds();
}

Error LinkState::NotUpLocked() const {
  const std::string why = info_.error ? info_.error->message : "it has not answered yet";
  return {ErrorCode::kPeerUnavailable, "peer '" + info_.name + "' is not up: " + why,
          "GET /v1/peers/" + info_.name + " shows its state; it is connected to again by itself"};
}

}  // namespace gantry::peer
