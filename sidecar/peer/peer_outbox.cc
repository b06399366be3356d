#include "sidecar/peer/peer_outbox.h"

#include <utility>

#include "lib/base/log.h"

namespace gantry::peer {

PeerOutbox::PeerOutbox(PeerDirectory& directory, PeerOutboxOptions options)
    : directory_(directory), options_(options) {}

PeerOutbox::~PeerOutbox() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    threads.swap(ended_);
    for (const auto& [peer, lane] : lanes_) {
      lane->changed.NotifyAll();
      threads.push_back(std::move(lane->thread));
    }
  }
  for (std::thread& thread : threads) thread.join();
}

void PeerOutbox::Notify(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, engine::DeliveryDone done) {
  auto shared = std::make_shared<const wire::Notification>(std::move(notification));
  Errand errand;
  errand.bytes = shared->content.message.size();
  errand.run = [this, peer, shared, deadline, done] {
    done(directory_.Notify(peer, *shared, deadline));
  };
  if (Status added = Add(peer, std::move(errand)); !added) done(added);
}

Result<uint64_t> PeerOutbox::UseHold(const std::string& peer, const wire::HoldUse& use,
                                     TimePoint deadline) {
  return directory_.UseHold(peer, use, deadline);
}

void PeerOutbox::EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) {
  const auto note = [peer](const Status& told) {
    if (told) return;
    log::Warning("the owner of a hold does not know that a transfer has ended",
                 {{"peer", peer}, {"error", told.error()}});
  };
  const TimePoint deadline = Clock::now() + options_.hold_end_max;
  note(Add(peer, {0, [this, peer, use, succeeded, deadline, note] {
                    note(directory_.EndHoldUse(peer, use, succeeded, deadline));
                  }}));
}

Status PeerOutbox::Add(const std::string& peer, Errand errand) {
  if (!directory_.Knows(peer)) {
    return Fail(ErrorCode::kNotFound, "no peer '" + peer + "'", "PUT /v1/peers/" + peer + " first");
  }
  std::vector<std::thread> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
    if (closed_) return Fail(ErrorCode::kShuttingDown, "this sidecar is stopping");
    auto found = lanes_.find(peer);
    if (found == lanes_.end()) {
      if (lanes_.size() >= options_.lanes_max) {
        return Fail(ErrorCode::kResourceExhausted,
                    "there is something to be said to " + std::to_string(lanes_.size()) +
                        " other peers, the most at once",
                    "try again in a moment");
      }
      const auto lane = std::make_shared<Lane>();
      found = lanes_.emplace(peer, lane).first;
      lane->thread = std::thread([this, peer, lane] { Run(peer, lane); });
    }
    Lane& lane = *found->second;
    if (lane.waiting.size() >= options_.errands_max ||
        lane.bytes + errand.bytes > options_.bytes_max) {
      return Fail(ErrorCode::kResourceExhausted,
                  std::to_string(lane.waiting.size()) + " notifications to peer '" + peer +
                      "' have not been sent yet",
                  "try again when the peer answers; GET /v1/peers/" + peer + " shows its state");
    }
    lane.bytes += errand.bytes;
    lane.waiting.push_back(std::move(errand));
    lane.changed.NotifyAll();
  }
  for (std::thread& thread : ended) thread.join();
  return {};
}

void PeerOutbox::Run(const std::string& peer, const std::shared_ptr<Lane>& lane) {
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
        lanes_.erase(peer);
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
