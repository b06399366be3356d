// Transfers that peers move for this sidecar, as the engine's loop sees them: started, polled,
// stopped like those of a transport. Owned by the engine's driver, but for what watchers are told.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/remote/peer_executor.h"
#include "sidecar/transport/transport.h"

namespace gantry::engine {

class DelegationWatcher;

// Whom a plan is for that this sidecar does not execute: its allocations are whole buffers, of
// which it says here which they are.
struct Delegation {
  std::string peer;
  std::vector<wire::BufferReference> local;  // with generations
  std::vector<wire::BufferReference> remote;
  std::vector<wire::Path> require_path;
  std::string why_not_here;  // of every path, where this sidecar could have executed it, too
};

// As how many ranges the peer is told of the plan: no more than kDelegatedRangesMax.
uint64_t RangesOf(const transport::MovePlan& plan);
inline constexpr uint64_t kDelegatedRangesMax = 262'144;

class DelegatedTransfers {
 public:
  // `wake`: called from any thread when Poll has something to say; outlives this.
  explicit DelegatedTransfers(std::function<void()> wake) : inbox_(std::make_shared<Inbox>()) {
    const MutexLock lock(inbox_->mutex);
    inbox_->wake = std::move(wake);
  }
  ~DelegatedTransfers();  // REQUIRES that all operations are gone

  // Set once, before the first transfer, and to null when no transfer runs any more.
  void SetExecutor(PeerExecutor* executor) { executor_ = executor; }
  // From any thread.
  Status CanExecute(const std::string& peer) const;

  std::unique_ptr<transport::Operation> Start(const std::shared_ptr<const Delegation>& delegation,
                                              std::shared_ptr<const transport::MovePlan> plan,
                                              TimePoint deadline, int priority, uint64_t token);

  struct Accepted {
    uint64_t token = 0;
    wire::Path path = wire::Path::kTcp;
    std::vector<wire::PathReport> paths;
  };
  // As Transport::Poll; `accepted`: which path the peers took, once for each.
  bool Poll(std::vector<uint64_t>* attention, std::vector<Accepted>* accepted);

 private:
  class DelegatedOperation;
  // Shared with those who watch: they may outlive this.
  struct Inbox {
    Mutex mutex;
    std::function<void()> wake GUARDED_BY(mutex);  // null: nobody polls any more
    std::vector<std::shared_ptr<DelegationWatcher>> changed GUARDED_BY(mutex);
  };
  friend class DelegationWatcher;

  PeerExecutor* executor_ = nullptr;
  const std::shared_ptr<Inbox> inbox_;
  std::vector<std::shared_ptr<DelegationWatcher>> attended_;  // scratch of Poll
};

}  // namespace gantry::engine
