// Queues of messages to peers. Each peer with messages has a queue and a thread that sends them
// one by one. So an unresponsive peer delays only itself. Transfers wait for their notifications,
// so these have their own queues. Ends of hold uses have queues that send batches. Queues without a
// thread share one. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/remote/peer_messenger.h"

namespace gantry::peer {

struct PeerOutboxOptions {
  size_t messages_max = 1024;          // notifications per peer
  size_t bytes_max = size_t{8} << 20;  // per peer
  size_t queues_max = 1024;            // for notifications
  milliseconds hold_end_max{30'000};
  // How long a transfer's notification waits for a peer that is down. It covers a broken
  // connection, not a restarting peer, which knows no receiver yet.
  milliseconds down_max{2'000};
  milliseconds idle_max{10'000};  // then a queue's thread ends
};

class PeerOutbox final : public engine::PeerMessenger {
 public:
  // The directory outlives it.
  explicit PeerOutbox(PeerDirectory& directory, PeerOutboxOptions options = {});
  // Tries each waiting message once more. REQUIRES that the directory is closed, so that nothing
  // blocks.
  ~PeerOutbox() override;

  void Notify(const std::string& peer, wire::Notification notification, TimePoint deadline,
              engine::DeliveryDone done) override EXCLUDES(mutex_);
  void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, engine::DeliveryDone done) override EXCLUDES(mutex_);
  Result<uint64_t> UseHold(const std::string& peer, const wire::HoldUse& use,
                           TimePoint deadline) override;
  // Retried for hold_end_max. If that fails, the use ends with the transfer's deadline. Never
  // refused for lack of room: the owner limits the number of uses.
  void EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) override EXCLUDES(mutex_);

 private:
  struct Message {
    size_t bytes = 0;
    std::function<void()> run;
  };
  struct PeerQueue {
    std::jthread thread;  // none: it uses the shared thread
    Condition changed;
    std::deque<Message> waiting;
    size_t bytes = 0;  // total of the waiting messages
  };
  using PeerQueues = std::map<std::string, std::shared_ptr<PeerQueue>>;  // by peer
  struct SharedQueue {
    PeerQueues* queues;
    std::string peer;
    std::shared_ptr<PeerQueue> queue;
  };
  // Waiting ends of one peer's hold uses. A message in the peer's queue will send them.
  struct HoldEnds {
    std::vector<wire::HoldUseEnd> ends;
    TimePoint until;  // when the last of them is given up
  };

  // Without `down_max` it retries until the deadline, even if the peer is down.
  void NotifyIn(PeerQueues* queues, const std::string& peer, wire::Notification notification,
                TimePoint deadline, std::optional<milliseconds> down_max, engine::DeliveryDone done)
      EXCLUDES(mutex_);
  Status AddNotification(PeerQueues* queues, const std::string& peer, Message message)
      EXCLUDES(mutex_);
  Status AddHoldEnd(const std::string& peer, wire::HoldUseEnd end) EXCLUDES(mutex_);
  void SayHoldEnds(const std::string& peer) EXCLUDES(mutex_);
  Status CheckKnown(const std::string& peer) const;
  Status CheckRoom(const PeerQueues& queues, const std::string& peer, size_t bytes) const
      REQUIRES(mutex_);
  void Add(PeerQueues* queues, const std::string& peer, Message message) REQUIRES(mutex_);
  void ServeShared() EXCLUDES(mutex_);
  std::function<void()> NextShared() EXCLUDES(mutex_);
  void Run(PeerQueues* queues, const std::string& peer, const std::shared_ptr<PeerQueue>& queue)
      EXCLUDES(mutex_);
  void JoinEnded() EXCLUDES(mutex_);

  PeerDirectory& directory_;
  const PeerOutboxOptions options_;

  Mutex mutex_;
  PeerQueues notification_queues_ GUARDED_BY(mutex_);
  PeerQueues transfer_queues_ GUARDED_BY(mutex_);
  PeerQueues hold_queues_ GUARDED_BY(mutex_);  // at most one per peer
  std::map<std::string, HoldEnds> hold_ends_ GUARDED_BY(mutex_);
  std::vector<std::jthread> ended_ GUARDED_BY(mutex_);        // to be joined
  std::deque<SharedQueue> shared_queues_ GUARDED_BY(mutex_);  // next to be served first
  Condition share_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::jthread sharing_thread_;  // last: it uses the others
};

}  // namespace gantry::peer
