// What waits to be said to peers. One lane for each peer that there is something for: a thread that
// says one thing after the other, so that a peer which does not answer holds up its own lane alone.
// Notifications of transfers have lanes of their own, because a transfer waits for them; so have
// ends of hold uses, where those that wait are said together. Lanes that no thread can be made for
// share one, which is there from the start. Thread-safe.
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
#include "sidecar/peer/client/peer_directory.h"
#include "sidecar/remote/peer_messenger.h"

namespace gantry::peer {

struct PeerOutboxOptions {
  size_t errands_max = 1024;           // notifications of each peer
  size_t bytes_max = size_t{8} << 20;  // of each peer
  size_t lanes_max = 1024;             // of notifications
  milliseconds hold_end_max{30'000};
  // A transfer's notification waits so long for a peer that is down: for a connection that broke,
  // not for a peer that starts anew and knows no receiver yet.
  milliseconds down_max{2'000};
  milliseconds idle_max{10'000};  // then a lane's thread ends
};

class PeerOutbox final : public engine::PeerMessenger {
 public:
  // The directory outlives it.
  explicit PeerOutbox(PeerDirectory& directory, PeerOutboxOptions options = {});
  // What still waits is tried once more. The directory was closed before, so that nothing lasts.
  ~PeerOutbox() override;

  void Notify(const std::string& peer, wire::Notification notification, TimePoint deadline,
              engine::DeliveryDone done) override EXCLUDES(mutex_);
  void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, engine::DeliveryDone done) override EXCLUDES(mutex_);
  Result<uint64_t> UseHold(const std::string& peer, const wire::HoldUse& use,
                           TimePoint deadline) override;
  // Tried for hold_end_max; without it the use ends with the transfer's deadline. None is refused
  // for want of room: there are no more of them than transfers that the owner has let begin.
  void EndHoldUse(const std::string& peer, uint64_t use, bool succeeded) override EXCLUDES(mutex_);

 private:
  struct Errand {
    size_t bytes = 0;
    std::function<void()> run;
  };
  struct Lane {
    std::jthread thread;  // none: it shares the common one
    Condition changed;
    std::deque<Errand> waiting;
    size_t bytes = 0;  // of those that wait
  };
  using Lanes = std::map<std::string, std::shared_ptr<Lane>>;  // by peer
  struct SharedLane {
    Lanes* lanes;
    std::string peer;
    std::shared_ptr<Lane> lane;
  };
  // Of uses of one peer's holds, that wait. An errand in its lane will say them.
  struct HoldEnds {
    std::vector<wire::HoldUseEnd> ends;
    TimePoint until;  // the last of them is tried
  };

  // Nothing in `down_max`: up to the deadline, whatever the peer does.
  void NotifyIn(Lanes* lanes, const std::string& peer, wire::Notification notification,
                TimePoint deadline, std::optional<milliseconds> down_max, engine::DeliveryDone done)
      EXCLUDES(mutex_);
  Status AddNotification(Lanes* lanes, const std::string& peer, Errand errand) EXCLUDES(mutex_);
  Status AddHoldEnd(const std::string& peer, wire::HoldUseEnd end) EXCLUDES(mutex_);
  void SayHoldEnds(const std::string& peer) EXCLUDES(mutex_);
  Status CheckKnown(const std::string& peer) const;
  Status CheckRoom(const Lanes& lanes, const std::string& peer, size_t bytes) const
      REQUIRES(mutex_);
  void Add(Lanes* lanes, const std::string& peer, Errand errand) REQUIRES(mutex_);
  void ServeShared() EXCLUDES(mutex_);
  std::function<void()> NextShared() EXCLUDES(mutex_);
  void Run(Lanes* lanes, const std::string& peer, const std::shared_ptr<Lane>& lane)
      EXCLUDES(mutex_);
  void JoinEnded() EXCLUDES(mutex_);

  PeerDirectory& directory_;
  const PeerOutboxOptions options_;

  Mutex mutex_;
  Lanes notification_lanes_ GUARDED_BY(mutex_);
  Lanes transfer_lanes_ GUARDED_BY(mutex_);
  Lanes hold_lanes_ GUARDED_BY(mutex_);  // no more than peers
  std::map<std::string, HoldEnds> hold_ends_ GUARDED_BY(mutex_);
  std::vector<std::jthread> ended_ GUARDED_BY(mutex_);      // to be joined
  std::deque<SharedLane> shared_lanes_ GUARDED_BY(mutex_);  // the next to be served first
  Condition share_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::jthread sharing_thread_;  // last: it uses the others
};

}  // namespace gantry::peer
