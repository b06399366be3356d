// Transfers that peers execute for this sidecar, seen like a transport's operations: started,
// polled, stopped. The driver makes all calls, except where noted.
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

// The target of a plan that a peer executes. The plan's allocations are whole buffers; `local` and
// `remote` name them.
struct Delegation {
  std::string peer;
  std::vector<wire::BufferReference> local;  // including generations
  std::vector<wire::BufferReference> remote;
  std::vector<wire::Path> require_path;
  std::string why_not_here;  // why each path fails here, if this sidecar could have executed it
};

// Number of ranges that the plan has in the request to the peer; at most kDelegatedRangesMax.
uint64_t RangesOf(const transport::MovePlan& plan);
inline constexpr uint64_t kDelegatedRangesMax = 262'144;

class DelegatedTransfers {
 public:
  // `wake` runs on any thread when Poll has work; it outlives this.
  explicit DelegatedTransfers(std::function<void()> wake) : inbox_(std::make_shared<Inbox>()) {
    const MutexLock lock(inbox_->mutex);
    inbox_->wake = std::move(wake);
  }
  ~DelegatedTransfers();  // REQUIRES that all operations are destroyed

  // Call once, before the first transfer. Reset to null when no transfer runs any more.
  void SetExecutor(PeerExecutor* executor) { executor_ = executor; }
  // Any thread.
  Status CanExecute(const std::string& peer) const;

  std::unique_ptr<transport::Operation> Start(const std::shared_ptr<const Delegation>& delegation,
                                              std::shared_ptr<const transport::MovePlan> plan,
                                              TimePoint deadline, int priority, uint64_t token);

  struct Accepted {
    uint64_t token = 0;
    wire::Path path = wire::Path::kTcp;
    std::vector<wire::PathReport> paths;
  };
  // Like Transport::Poll; `accepted` gets the path that each peer took, once per transfer.
  bool Poll(std::vector<uint64_t>* ready_tokens, std::vector<Accepted>* accepted);

 private:
  class DelegatedOperation;
  // Shared with watchers, which may outlive this.
  struct Inbox {
    Mutex mutex;
    std::function<void()> wake GUARDED_BY(mutex);  // null: the object is gone
    std::vector<std::shared_ptr<DelegationWatcher>> changed GUARDED_BY(mutex);
  };
  friend class DelegationWatcher;

  PeerExecutor* executor_ = nullptr;
  const std::shared_ptr<Inbox> inbox_;
  std::vector<std::shared_ptr<DelegationWatcher>> updated_;  // scratch of Poll
};

}  // namespace gantry::engine
