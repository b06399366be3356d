#include "sidecar/peer/link/peer_link.h"

#include <algorithm>
#include <optional>
#include <stop_token>
#include <utility>
#include <variant>

#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/wire/session_times.h"

namespace gantry::peer {
namespace {

constexpr milliseconds kConnectMax{2'000};  // a peer that hangs must not hold the thread longer
constexpr milliseconds kIdleWait = wire::kSilenceLook;
constexpr milliseconds kQuietFirst{1'000};
constexpr milliseconds kStopAgain{20};  // a transfer may be admitted while others are stopped

}  // namespace

PeerLink::PeerLink(const PeerDirectoryOptions& options, Peer peer, memory::MemoryMapper& mapper,
                   engine::EventLog& events, const PeerDirectory::StopTransfers& stop_transfers,
                   const std::shared_ptr<registry::FdBudget>& fds)
    : options_(options),
      peer_(std::move(peer)),
      events_(events),
      stop_transfers_(stop_transfers),
      wake_(std::make_shared<WakeSignal>()),
      cache_([wake = wake_] { wake->Wake(); }),
      revocations_(peer_.name, cache_),
      state_(peer_.name, peer_.address),
      fetcher_(peer_.name, {state_, revocations_, cache_, *wake_}, mapper, fds),
      calls_(peer_.name, state_),
      backoff_(options_.reconnect_min, options_.reconnect_max),
      relay_([this](uint64_t session, const PeerEvent& event) { OnEvent(session, event); }),
      thread_(StartThread("gantry-peer", [this](const std::stop_token& stop) { Run(stop); })) {}

bool PeerLink::ProvesSession(const std::vector<std::string>& proofs) const {
  return state_.IsProvenBy(proofs);
}

bool PeerLink::Close(TimePoint deadline) {
  state_.Close();
  wake_->Wake();
  return state_.AwaitClosed(deadline, true);
}

void PeerLink::StopWaiting() {
  revocations_.StopWaiting();
  state_.StopWaiting();
}

void PeerLink::Run(const std::stop_token& stop) {
  const std::stop_callback wakes(stop, [this] { wake_->Wake(); });
  while (!stop.stop_requested()) {
    // Read before the session is ended for it: without a session nothing new is mapped.
    const bool closing = state_.closing();
    if (const auto why = state_.ReasonToEnd(options_.silence_max)) EndSession(*why);
    TimePoint wake = UnmapUnused();
    if (state_.session() == nullptr && !closing && !state_.stopping()) {
      // Opening may take a while: first unmap what the last session left, if that can be done.
      const TimePoint attempt =
          backoff_.next() + (cache_.retired() == 0 ? milliseconds(0) : kQuietFirst);
      if (Clock::now() >= attempt) TryOpen();
      wake = std::min(wake, std::max(attempt, Clock::now()));
    }
    if (closing && cache_.retired() == 0) {
      if (revocations_.fetching()) {  // it may still hold mappings
        wake = Clock::now() + kStopAgain;
      } else {
        state_.SetClosed();
      }
    }
    wake_->WaitUntil(wake);
  }
  EndSession(Error(ErrorCode::kShuttingDown, "this sidecar lets go of the peer"));
  UnmapUnused();
}

void PeerLink::TryOpen() {
  const uint64_t number = state_.BeginOpening();
  revocations_.BeginSession(number);
  const std::shared_ptr<PeerClient> client = MakeClient(number);
  if (!state_.SetOpening(client)) return;
  Status opened = client->Open(Clock::now() + std::min(kConnectMax, options_.call_timeout));
  const bool is_wanted = state_.SetOpening(nullptr);
  if (!opened) {
    backoff_.Postpone();
    state_.FailOpening(std::move(opened).error().WithContext("peer '" + peer_.name + "'"));
    return;
  }
  if (!is_wanted) return;
  state_.SetUp(std::make_shared<PeerSession>(options_, peer_.name, number, client, [this] {
    return state_.closing() || state_.stopping();
  }));
  const std::string generation = HexOf(client->facts().owner.generation);
  log::Info("a peer is up", {{"peer", peer_.name}, {"generation", generation}});
  events_.Append(
      {0, engine::EventType::kPeerUp, {}, peer_.name, "generation " + generation, nullptr});
}

std::unique_ptr<PeerClient> PeerLink::MakeClient(uint64_t session) const {
  return PeerClient::Make({options_.self,
                           {options_.uids_allowed, options_.security, options_.silence_max},
                           options_.call_timeout,
                           wire::kPeerVersions},
                          peer_.parsed, relay_.HandlerOf(session));
}

// The peer's memory must not outlive it here. The mappings go as soon as its transfers are quiet.
// The buffers are retired first: no caller gets one of a peer that is known to be down.
void PeerLink::EndSession(const Error& why) {
  const std::shared_ptr<PeerSession> session = state_.session();
  if (session == nullptr) return;
  revocations_.EndSession(why);
  state_.SetDown(why);
  backoff_.Reset();
  session->Close(why);
  log::Warning("a peer is down", {{"peer", peer_.name}, {"error", why}});
  events_.Append({0, engine::EventType::kPeerDown, {}, peer_.name, why.message, nullptr});
}

TimePoint PeerLink::UnmapUnused() {
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
  const std::shared_ptr<PeerSession> session = state_.session();
  if (session == nullptr) return;
  const std::vector<uint64_t> ids = revocations_.TakeUnmapped();
  if (ids.empty()) return;
  const Status told = session->client()->Acknowledge(ids, Clock::now() + options_.call_timeout);
  if (told) {
    revocations_.SetAcknowledged(ids);
    return;
  }
  // The end of the session says the same, once everything is unmapped.
  log::Warning("an acknowledgement failed", {{"peer", peer_.name}, {"error", told.error()}});
  session->client()->Break();
}

void PeerLink::OnEvent(uint64_t session, const PeerEvent& event) {
  if (!state_.Hear(session) || std::holds_alternative<PeerAlive>(event)) return;
  if (const auto* ended = std::get_if<PeerEnded>(&event)) {
    state_.HearEnd(session, ended->why);
  } else {
    revocations_.Add(session, std::get<wire::PeerRevocation>(event));
  }
  wake_->Wake();
}

}  // namespace gantry::peer
