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
    for (const PeerQueues* queues : {&notification_queues_, &transfer_queues_, &hold_queues_}) {
      for (const auto& [peer, queue] : *queues) {
        queue->changed.NotifyAll();
        threads.push_back(std::move(queue->thread));
      }
    }
  }
  for (std::jthread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
}

void PeerOutbox::Notify(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, engine::DeliveryDone done) {
  NotifyIn(&notification_queues_, peer, std::move(notification), deadline, {}, std::move(done));
}

void PeerOutbox::NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                                  TimePoint deadline, engine::DeliveryDone done) {
  NotifyIn(&transfer_queues_, peer, std::move(notification), deadline, options_.down_max,
           std::move(done));
}

void PeerOutbox::NotifyIn(PeerQueues* queues, const std::string& peer,
                          wire::Notification notification, TimePoint deadline,
                          std::optional<milliseconds> down_max, engine::DeliveryDone done) {
  auto shared = std::make_shared<const wire::Notification>(std::move(notification));
  Message message;
  message.bytes = shared->content.message.size();
  message.run = [this, peer, shared, deadline, down_max, done] {
    const TimePoint start = Clock::now();
    const Status outcome = directory_.Notify(peer, *shared, deadline, down_max);
    done(outcome, std::chrono::duration_cast<microseconds>(Clock::now() - start));
  };
  if (Status added = AddNotification(queues, peer, std::move(message)); !added) {
    done(added, std::nullopt);
  }
}

Status PeerOutbox::AddNotification(PeerQueues* queues, const std::string& peer, Message message) {
  RETURN_IF_ERROR(CheckKnown(peer));
  JoinEnded();
  const MutexLock lock(mutex_);
  if (closed_) return Stopping();
  RETURN_IF_ERROR(CheckRoom(*queues, peer, message.bytes));
  Add(queues, peer, std::move(message));
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
  if (waiting.ends.size() == 1) Add(&hold_queues_, peer, {0, [this, peer] { SayHoldEnds(peer); }});
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

Status PeerOutbox::CheckRoom(const PeerQueues& queues, const std::string& peer,
                             size_t bytes) const {
  const auto found = queues.find(peer);
  if (found == queues.end()) {
    if (queues.size() < options_.queues_max) return {};
    return Fail(ErrorCode::kResourceExhausted,
                "there is something to be said to " + std::to_string(queues.size()) +
                    " other peers, the most at once",
                "try again in a moment");
  }
  const PeerQueue& queue = *found->second;
  if (queue.waiting.size() < options_.messages_max && queue.bytes + bytes <= options_.bytes_max) {
    return {};
  }
  return Fail(ErrorCode::kResourceExhausted,
              std::to_string(queue.waiting.size()) + " notifications to peer '" + peer +
                  "' have not been sent yet",
              "try again when the peer answers; GET /v1/peers/" + peer + " shows its state");
}

void PeerOutbox::Add(PeerQueues* queues, const std::string& peer, Message message) {
  std::shared_ptr<PeerQueue>& queue = (*queues)[peer];
  if (queue == nullptr) {
    queue = std::make_shared<PeerQueue>();
    auto thread =
        StartThread("gantry-say", [this, queues, peer, queue] { Run(queues, peer, queue); });
    if (thread) {
      queue->thread = *std::move(thread);
    } else {
      shared_queues_.push_back({queues, peer, queue});
    }
  }
  queue->bytes += message.bytes;
  queue->waiting.push_back(std::move(message));
  queue->changed.NotifyAll();
  share_.NotifyAll();
}

// Empty: there is nothing more to do.
std::function<void()> PeerOutbox::NextShared() {
  MutexLock lock(mutex_);
  while (true) {
    while (shared_queues_.empty()) {
      if (closed_) return {};
      share_.Wait(lock);
    }
    SharedQueue next = std::move(shared_queues_.front());
    shared_queues_.pop_front();
    PeerQueue& queue = *next.queue;
    if (queue.waiting.empty()) {  // its peer's next message tries for a thread again
      next.queues->erase(next.peer);
      continue;
    }
    Message message = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    queue.bytes -= message.bytes;
    shared_queues_.push_back(std::move(next));  // the other queues come first
    return std::move(message.run);
  }
}

void PeerOutbox::ServeShared() {
  while (const std::function<void()> message = NextShared()) message();
}

void PeerOutbox::JoinEnded() {
  std::vector<std::jthread> ended;
  {
    const MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (std::jthread& thread : ended) thread.join();
}

void PeerOutbox::Run(PeerQueues* queues, const std::string& peer,
                     const std::shared_ptr<PeerQueue>& queue) {
  while (true) {
    Message message;
    {
      MutexLock lock(mutex_);
      const TimePoint idle_until = Clock::now() + options_.idle_max;
      while (queue->waiting.empty()) {
        if (closed_) return;
        if (queue->changed.WaitUntil(lock, idle_until) || !queue->waiting.empty()) continue;
        if (closed_) return;
        ended_.push_back(std::move(queue->thread));
        queues->erase(peer);
        return;
      }
      message = std::move(queue->waiting.front());
      queue->waiting.pop_front();
      queue->bytes -= message.bytes;
    }
    message.run();
  }
}

}  // namespace gantry::peer
