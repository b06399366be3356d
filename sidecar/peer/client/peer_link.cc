#include "sidecar/peer/client/peer_link.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/random_id.h"
#include "lib/base/thread.h"
#include "lib/wire/session_times.h"
#include "sidecar/peer/client/queue_pair_exchanger.h"
#include "sidecar/peer/client/stage_exchanger.h"
#include "sidecar/peer/client/stream_opener.h"
#include "sidecar/transport/bounce/bounce_transport.h"
#include "sidecar/transport/rdma/rdma_transport.h"
#include "sidecar/transport/tcp/tcp_transport.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kConnectMax{2'000};  // a peer that hangs must not hold the thread longer
constexpr milliseconds kCheckMax{2'000};    // likewise, one that takes no data connection
constexpr milliseconds kIdleWait = wire::kSilenceLook;
constexpr milliseconds kQuietFirst{1'000};
constexpr milliseconds kStopAgain{20};  // a transfer may be admitted while others are stopped

int64_t UnixMilliseconds() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Doubled with each failure; between half and all of it, so that peers do not come in step.
milliseconds Backoff(const PeerDirectoryOptions& options, int failures) {
  const int64_t doubled = options.reconnect_min.count() << std::min(failures, 16);
  const int64_t most = std::min<int64_t>(doubled, options.reconnect_max.count());
  return milliseconds(most / 2 + static_cast<int64_t>(RandomGeneration() % (most / 2 + 1)));
}

}  // namespace

void PeerLink::Bell::Ring() {
  const MutexLock lock(mutex);
  ringing = true;
  rang.NotifyAll();
}

void PeerLink::Bell::WaitUntil(TimePoint deadline) {
  MutexLock lock(mutex);
  while (!ringing && rang.WaitUntil(lock, deadline)) {
  }
  ringing = false;
}

PeerLink::PeerLink(const PeerDirectoryOptions& options, std::string name, std::string address,
                   PeerAddress parsed, memory::MemoryMapper& mapper, engine::EventLog& events,
                   const PeerDirectory::StopTransfers& stop_transfers,
                   std::shared_ptr<registry::FdBudget> fds)
    : options_(options),
      name_(std::move(name)),
      address_(std::move(address)),
      parsed_(std::move(parsed)),
      mapper_(mapper),
      events_(events),
      stop_transfers_(stop_transfers),
      fds_(std::move(fds)),
      bell_(std::make_shared<Bell>()),
      cache_([bell = bell_] { bell->Ring(); }),
      number_(RandomGeneration()),
      next_attempt_(Clock::now()) {
  {
    const MutexLock lock(mutex_);
    info_.name = name_;
    info_.address = address_;
    SetState(engine::PeerState::kConnecting);
  }
}

Status PeerLink::Start() {
  ASSIGN_OR_RETURN(thread_,
                   StartThread("gantry-peer", [this](const std::stop_token& stop) { Run(stop); }));
  return {};
}

PeerLink::~PeerLink() {
  {
    const MutexLock lock(gate_->mutex);
    gate_->link = nullptr;
  }
  thread_.request_stop();
  bell_->Ring();
  if (thread_.joinable()) thread_.join();
}

Status PeerLink::AwaitUp(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (info_.state != engine::PeerState::kUp && !closing_) {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    if (!changed_.WaitUntil(lock, deadline)) break;
  }
  return {};
}

bool PeerLink::Close(TimePoint deadline) {
  std::shared_ptr<PeerClient> ending;
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    ending = session_ != nullptr ? session_->client : opening_;
    changed_.NotifyAll();
  }
  if (ending != nullptr) ending->Break();  // the link's thread may be in a call of it
  bell_->Ring();
  MutexLock lock(mutex_);
  while (!closed_ && !stopping_ && changed_.WaitUntil(lock, deadline)) {
  }
  return closed_;
}

bool PeerLink::AwaitClosed(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!closed_ && changed_.WaitUntil(lock, deadline)) {
  }
  return closed_;
}

void PeerLink::StopWaiting() {
  std::shared_ptr<PeerClient> opening, up;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    opening = opening_;
    if (session_ != nullptr) up = session_->client;
    changed_.NotifyAll();
  }
  if (opening != nullptr) opening->Break();
  if (up != nullptr) up->StopFetching();
}

void PeerLink::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool up = false, closing = false, stopping = false;
    {
      const MutexLock lock(mutex_);
      up = session_ != nullptr;
      closing = closing_;
      stopping = stopping_;
    }
    if (const auto why = ReasonToEnd()) {
      EndSession(*why);
      up = false;
    }
    TimePoint wake = Settle();
    if (!up && !closing && !stopping) {
      // Opening may take a while: first unmap what the last session left, if that can be done.
      const TimePoint attempt =
          next_attempt_ + (cache_.retired() == 0 ? milliseconds(0) : kQuietFirst);
      if (Clock::now() >= attempt) TryOpen();
      wake = std::min(wake, std::max(attempt, Clock::now()));
    }
    if (closing && cache_.retired() == 0) {
      const MutexLock lock(mutex_);
      closed_ = !fetching_;  // a fetch may still hold mappings
      changed_.NotifyAll();
      if (!closed_) wake = Clock::now() + kStopAgain;
    }
    bell_->WaitUntil(wake);
  }
  EndSession(Error(ErrorCode::kShuttingDown, "this sidecar lets go of the peer"));
  Settle();
}

void PeerLink::TryOpen() {
  uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = ++last_session_;
    ended_.reset();
    last_heard_ = Clock::now();
  }
  const std::shared_ptr<PeerClient> client =
      PeerClient::Make({options_.self,
                        {options_.uids_allowed, options_.security, options_.silence_max},
                        options_.call_timeout,
                        wire::kPeerVersions},
                       parsed_, [gate = gate_, number](const PeerEvent& event) {
                         const MutexLock lock(gate->mutex);
                         if (gate->link != nullptr) gate->link->OnEvent(number, event);
                       });
  {
    const MutexLock lock(mutex_);
    if (closing_ || stopping_) return;
    opening_ = client;
  }
  Status opened = client->Open(Clock::now() + std::min(kConnectMax, options_.call_timeout));
  {
    const MutexLock lock(mutex_);
    opening_ = nullptr;
    if (opened && (closing_ || stopping_)) return;
  }
  if (!opened) {
    const MutexLock lock(mutex_);
    info_.error = std::move(opened).error().WithContext("peer '" + name_ + "'");
    next_attempt_ = Clock::now() + Backoff(options_, failures_++);
    changed_.NotifyAll();
    return;
  }
  failures_ = 0;
  auto session = std::make_shared<Session>();
  session->number = number;
  session->client = client;
  OpenPaths(session.get());
  const PeerClient::Facts& facts = session->client->facts();
  {
    const MutexLock lock(mutex_);
    session_ = session;
    info_.generation = facts.owner.generation;
    info_.node_id = facts.owner.node_id;
    info_.version = facts.owner.build;
    info_.rtt_us = facts.rtt_us;
    info_.paths = PathsHere(facts.paths);
    info_.error.reset();
    SetState(engine::PeerState::kUp);
    changed_.NotifyAll();
  }
  log::Info("a peer is up", {{"peer", name_}, {"generation", HexOf(facts.owner.generation)}});
  events_.Append({0,
                  engine::EventType::kPeerUp,
                  {},
                  name_,
                  "generation " + HexOf(facts.owner.generation),
                  nullptr});
}

// Of what the peer offers, that which there is nothing for here is no path. What the GPUs or the
// memory here lack is another matter: there the peer may execute.
std::vector<wire::PathReport> PeerLink::PathsHere(std::vector<wire::PathReport> offered) const {
  for (wire::PathReport& report : offered) {
    const bool by_rdma = report.path == wire::Path::kRdma || report.path == wire::Path::kBounce;
    if (!report.available || !by_rdma || options_.rdma != nullptr) continue;
    report = {report.path, false, "not on this side: " + options_.why_no_rdma};
  }
  return offered;
}

void PeerLink::OpenPaths(Session* session) const {
  const std::shared_ptr<PeerClient>& client = session->client;
  const auto leads = [&](wire::Path path) {
    return client->facts().paths[static_cast<size_t>(path)].available;
  };
  if (options_.tcp != nullptr && leads(wire::Path::kTcp)) {
    session->streams = options_.tcp->AddPeer(name_, std::make_shared<StreamOpener>(client));
    // Now, so that the path is not said to be available where a firewall stands before the data.
    session->streams->Check(Clock::now() + kCheckMax, [this] {
      const MutexLock lock(mutex_);
      return closing_ || stopping_;
    });
  }
  if (options_.rdma != nullptr && leads(wire::Path::kRdma)) {
    session->queue_pairs =
        options_.rdma->AddPeer(name_, std::make_shared<QueuePairExchanger>(client));
  }
  if (options_.bounce != nullptr && session->queue_pairs != nullptr && leads(wire::Path::kBounce)) {
    session->stage = options_.bounce->AddStage(name_, session->queue_pairs,
                                               std::make_shared<StageExchanger>(client));
  }
}

std::optional<Error> PeerLink::ReasonToEnd() {
  const MutexLock lock(mutex_);
  if (session_ == nullptr) return {};
  if (closing_) return Error(ErrorCode::kPeerLost, "peer '" + name_ + "' was removed");
  if (ended_) {
    return Error(ErrorCode::kPeerLost, "peer '" + name_ + "' is gone: " + ended_->message);
  }
  const milliseconds silence =
      std::max(options_.silence_max, 3 * session_->client->facts().heartbeat);
  if (Clock::now() - last_heard_ < silence) return {};
  return Error(ErrorCode::kPeerLost,
               "peer '" + name_ + "' said nothing for " + std::to_string(silence.count()) + " ms");
}

// Its memory must not outlive it here: the mappings go as soon as its transfers are quiet.
void PeerLink::EndSession(const Error& why) {
  std::shared_ptr<Session> session;
  {
    const MutexLock lock(mutex_);
    session = std::exchange(session_, nullptr);
    if (session == nullptr) return;
    revocations_.clear();
    info_.error = why;
    SetState(engine::PeerState::kDown);
    cache_.RetireAll(Clock::now(), why);
    next_attempt_ = went_down_ = Clock::now();
  }
  changed_.NotifyAll();
  if (session->streams != nullptr) session->streams->Close(why);
  if (session->queue_pairs != nullptr) session->queue_pairs->Close(why);
  session->client->Break();
  log::Warning("a peer is down", {{"peer", name_}, {"error", why}});
  events_.Append({0, engine::EventType::kPeerDown, {}, name_, why.message, nullptr});
}

// Unmaps what nobody uses any more, stops who uses it too long; returns when to look again.
TimePoint PeerLink::Settle() {
  const TimePoint now = Clock::now();
  RemoteBufferCache::Due due = cache_.TakeDue(now);
  // First: unmapping waits for a copy worker that hangs, and stopping its transfers ends that one.
  for (const auto& overdue : due.overdue) stop_transfers_(overdue.buffer, overdue.why);
  TimePoint wake = now + kIdleWait;
  if (!due.overdue.empty()) wake = now + kStopAgain;
  if (due.next) wake = std::min(wake, *due.next);
  due.overdue.clear();
  due.unused.clear();
  AcknowledgeUnmapped();
  return wake;
}

void PeerLink::AcknowledgeUnmapped() {
  std::shared_ptr<Session> session;
  std::vector<uint64_t> ids;
  {
    const MutexLock lock(mutex_);
    session = session_;
    if (session == nullptr) return;
    const uint64_t fetch_now = fetching_ ? last_fetch_ : 0;
    std::erase_if(revocations_, [&](const Revocation& revocation) {
      return revocation.acknowledged && revocation.fetch != fetch_now;
    });
    changed_.NotifyAll();  // AwaitAcknowledged
    for (const Revocation& revocation : revocations_) {
      const bool may_be_mapped = fetch_now != 0 && revocation.fetch == fetch_now;
      if (!revocation.acknowledged && !may_be_mapped &&
          !cache_.Holds(revocation.what.buffer_generation)) {
        ids.push_back(revocation.what.id);
      }
    }
  }
  if (ids.empty()) return;
  if (Status told = session->client->Acknowledge(ids, Clock::now() + options_.call_timeout);
      !told) {
    // The end of the session says the same, once everything is unmapped.
    log::Warning("an acknowledgement failed", {{"peer", name_}, {"error", told.error()}});
    session->client->Break();
    return;
  }
  const MutexLock lock(mutex_);
  for (Revocation& revocation : revocations_) {
    if (std::find(ids.begin(), ids.end(), revocation.what.id) == ids.end()) continue;
    revocation.acknowledged = true;
    revocation.fetch = fetching_ ? last_fetch_ : 0;
  }
  std::erase_if(revocations_, [](const Revocation& revocation) {
    return revocation.acknowledged && revocation.fetch == 0;
  });
  changed_.NotifyAll();
}

void PeerLink::SetState(engine::PeerState state) {
  info_.state = state;
  info_.since_unix_ms = UnixMilliseconds();
}

void PeerLink::OnEvent(uint64_t session, const PeerEvent& event) {
  {
    const MutexLock lock(mutex_);
    if (session != last_session_) return;
    last_heard_ = Clock::now();
    if (std::holds_alternative<PeerAlive>(event)) return;
    if (const auto* ended = std::get_if<PeerEnded>(&event)) {
      if (!ended_) ended_ = ended->why;
    } else {
      const auto& revocation = std::get<wire::PeerRevocation>(event);
      revocations_.push_back({revocation, fetching_ ? last_fetch_ : 0});
      cache_.Retire(revocation.buffer_generation, last_heard_ + milliseconds(revocation.grace_ms),
                    Error(ErrorCode::kDraining, "peer '" + name_ + "' took the buffer back",
                          revocation.suspended ? "it comes back after a resume" : ""));
    }
  }
  bell_->Ring();
}

}  // namespace gantry::peer
