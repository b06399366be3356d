#include "sidecar/peer/link/peer_outbox.h"

#include <span>
#include <utility>

#include "lib/base/log.h"
#include "lib/base/thread.h"

namespace gantry::peer {
namespace {

tl::unexpected<Error> Stopping() {
  return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
}

void WarnUnsaid(const std::string& peer, size_t count, const Error& error) {
  log::Warning("the owner of a hold does not know that transfers have ended",
               {{"peer", peer}, {"transfers", count}, {"error", error}});
}

}  // namespace

PeerOutbox::PeerOutbox(PeerDirectory& directory, PeerOutboxOptions options)
    : directory_(directory), options_(options) {
  auto thread = StartThread("gantry-outbox", [this] { ServeShared(); });
  if (thread) {
    sharing_thread_ = *std::move(thread);
  } else {
    log::Error("what is said to peers may wait for a thread", {{"error", thread.error()}});
  }
}

PeerOutbox::~PeerOutbox() {
  std::vector<std::jthread> threads;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    threads.swap(ended_);
    threads.push_back(std::move(sharing_thread_));
    share_.NotifyAll();
    for (const Lanes* lanes : {&notification_lanes_, &transfer_lanes_, &hold_lanes_}) {
      for (const auto& [peer, lane] : *lanes) {
        lane->changed.NotifyAll();
        threads.push_back(std::move(lane->thread));
      }
    }
  }
  for (std::jthread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

void PeerOutbox::Notify(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, engine::DeliveryDone done) {
  NotifyIn(&notification_lanes_, peer, std::move(notification), deadline, {}, std::move(done));
}

void PeerOutbox::NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                                  TimePoint deadline, engine::DeliveryDone done) {
  NotifyIn(&transfer_lanes_, peer, std::move(notification), deadline, options_.down_max,
           std::move(done));
}

void PeerOutbox::NotifyIn(Lanes* lanes, const std::string& peer, wire::Notification notification,
                          TimePoint deadline, std::optional<milliseconds> down_max,
                          engine::DeliveryDone done) {
  auto shared = std::make_shared<const wire::Notification>(std::move(notification));
  Errand errand;
  errand.bytes = shared->content.message.size();
  errand.run = [this, peer, shared, deadline, down_max, done] {
    const TimePoint start = Clock::now();
    const Status outcome = directory_.Notify(peer, *shared, deadline, down_max);
    done(outcome, std::chrono::duration_cast<microseconds>(Clock::now() - start));
  };
  if (Status added = AddNotification(lanes, peer, std::move(errand)); !added) {
    done(added, std::nullopt);
  }
}

Status PeerOutbox::AddNotification(Lanes* lanes, const std::string& peer, Errand errand) {
  RETURN_IF_ERROR(CheckKnown(peer));
  JoinEnded();
  const MutexLock lock(mutex_);
  if (closed_) return Stopping();
  RETURN_IF_ERROR(CheckRoom(*lanes, peer, errand.bytes));
  Add(lanes, peer, std::move(errand));
  return {};
}

Result<uint64_t> PeerOutbox::UseHold(const std::string& peer, const wire::HoldUse& use,
                                     TimePoint deadline) {
  return directory_.UseHold(peer, use, deadline);
}

void PeerOutbox::EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) {
  if (Status added = AddHoldEnd(peer, {use, succeeded}); !added) WarnUnsaid(peer, 1, added.error());
}

Status PeerOutbox::AddHoldEnd(const std::string& peer, wire::HoldUseEnd end) {
  RETURN_IF_ERROR(CheckKnown(peer));
  JoinEnded();
  const MutexLock lock(mutex_);
  if (closed_) return Stopping();
  HoldEnds& waiting = hold_ends_[peer];
  waiting.ends.push_back(end);
  waiting.until = Clock::now() + options_.hold_end_max;
  if (waiting.ends.size() == 1) Add(&hold_lanes_, peer, {0, [this, peer] { SayHoldEnds(peer); }});
  return {};
}

void PeerOutbox::SayHoldEnds(const std::string& peer) {
  HoldEnds waiting;
  {
    const MutexLock lock(mutex_);
    waiting = std::move(hold_ends_.extract(peer).mapped());
  }
  for (std::span<const wire::HoldUseEnd> unsaid(waiting.ends); !unsaid.empty();) {
    const auto said = directory_.EndHoldUses(peer, unsaid, waiting.until);
    if (!said) return WarnUnsaid(peer, unsaid.size(), said.error());
    unsaid = unsaid.subspan(*said);
  }
}

Status PeerOutbox::CheckKnown(const std::string& peer) const {
  if (directory_.Knows(peer)) return {};
  return Fail(ErrorCode::kNotFound, "no peer '" + peer + "'", "PUT /v1/peers/" + peer + " first");
}

Status PeerOutbox::CheckRoom(const Lanes& lanes, const std::string& peer, size_t bytes) const {
  const auto found = lanes.find(peer);
  if (found == lanes.end()) {
    if (lanes.size() < options_.lanes_max) return {};
    return Fail(ErrorCode::kResourceExhausted,
                "there is something to be said to " + std::to_string(lanes.size()) +
                    " other peers, the most at once",
                "try again in a moment");
  }
  const Lane& lane = *found->second;
  if (lane.waiting.size() < options_.errands_max && lane.bytes + bytes <= options_.bytes_max) {
    return {};
  }
  return Fail(ErrorCode::kResourceExhausted,
              std::to_string(lane.waiting.size()) + " notifications to peer '" + peer +
                  "' have not been sent yet",
              "try again when the peer answers; GET /v1/peers/" + peer + " shows its state");
}

void PeerOutbox::Add(Lanes* lanes, const std::string& peer, Errand errand) {
  std::shared_ptr<Lane>& lane = (*lanes)[peer];
  if (lane == nullptr) {
    lane = std::make_shared<Lane>();
    auto thread = StartThread("gantry-say", [this, lanes, peer, lane] { Run(lanes, peer, lane); });
    if (thread) {
      lane->thread = *std::move(thread);
    } else {
      shared_lanes_.push_back({lanes, peer, lane});
    }
  }
  lane->bytes += errand.bytes;
  lane->waiting.push_back(std::move(errand));
  lane->changed.NotifyAll();
  share_.NotifyAll();
}

// Empty: there is nothing more to do.
std::function<void()> PeerOutbox::NextShared() {
  MutexLock lock(mutex_);
  while (true) {
    while (shared_lanes_.empty()) {
      if (closed_) return {};
      share_.Wait(lock);
    }
    SharedLane next = std::move(shared_lanes_.front());
    shared_lanes_.pop_front();
    Lane& lane = *next.lane;
    if (lane.waiting.empty()) {  // its peer's next errand tries for a thread again
      next.lanes->erase(next.peer);
      continue;
    }
    Errand errand = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    lane.bytes -= errand.bytes;
    shared_lanes_.push_back(std::move(next));  // the other lanes come first
    return std::move(errand.run);
  }
}

void PeerOutbox::ServeShared() {
  while (const std::function<void()> errand = NextShared()) errand();
}

void PeerOutbox::JoinEnded() {
  std::vector<std::jthread> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (std::jthread& thread : ended) thread.join();
}

void PeerOutbox::Run(Lanes* lanes, const std::string& peer, const std::shared_ptr<Lane>& lane) {
  while (true) {
    Errand errand;
    {
      MutexLock lock(mutex_);
      const TimePoint idle_until = Clock::now() + options_.idle_max;
      while (lane->waiting.empty()) {
        if (closed_) return;
        if (lane->changed.WaitUntil(lock, idle_until) || !lane->waiting.empty()) continue;
        if (closed_) return;
        ended_.push_back(std::move(lane->thread));
        lanes->erase(peer);
        return;
      }
      errand = std::move(lane->waiting.front());
      lane->waiting.pop_front();
      lane->bytes -= errand.bytes;
    }
    errand.run();
  }
}

}  // namespace gantry::peer
