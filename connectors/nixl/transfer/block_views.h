// The views by which transfers name blocks. A thread makes them: both agents offer their buffers'
// blocks first, and transfers name ranges meanwhile. Thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/c_handles.h"
#include "connectors/nixl/agent/layout_request.h"
#include "connectors/nixl/agent/lease.h"
#include "connectors/nixl/agent/local_memory.h"
#include "connectors/nixl/transfer/block_plan.h"
#include "connectors/nixl/transfer/nixl_transfer.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class BlockViews {
 public:
  // `memory` outlives it.
  explicit BlockViews(LocalMemoryTable& memory) : memory_(memory) {}
  ~BlockViews();
  BlockViews(const BlockViews&) = delete;
  BlockViews& operator=(const BlockViews&) = delete;

  // Null where there is none yet; then it is wanted. Makes no request.
  ViewHandle Find(const std::shared_ptr<Lease>& lease, const AgentCard& target,
                  const BlockPlan& plan);
  // Another agent asks for blocks of this one's memory.
  void Offer(const std::shared_ptr<Lease>& lease, const LayoutRequest& request);
  // One by which a transfer failed. Another one is made after a while.
  void Drop(const AgentCard& target, const BlockPlan& plan);

 private:
  struct Entry {
    std::weak_ptr<Lease> lease;  // that has it, or is to have it
    ViewHandle view;             // null: not yet
    TimePoint not_before;        // while there is none it is wanted again from here on
    uint64_t used = 0;
  };
  struct Wanted {
    std::string key;
    std::shared_ptr<Lease> lease;
    AgentCard target;
    uint64_t block_bytes = 0;
    std::vector<std::vector<std::pair<std::string, std::string>>> groups;  // buffers
  };

  void Want(std::string key, const std::shared_ptr<Lease>& lease, const AgentCard& target,
            const BlockPlan& plan) REQUIRES(mutex_);
  void StartRunning() REQUIRES(mutex_);
  void Run(const std::stop_token& stop);
  // Does what is wanted first, or waits for it.
  void Step(const std::stop_token& stop);
  void OfferFirst();
  // Null: it cannot be had, or not now.
  ViewHandle Make(const Wanted& wanted, const std::stop_token& stop);
  // Returns false when it is to stop.
  bool Pause(milliseconds time, const std::stop_token& stop);

  LocalMemoryTable& memory_;
  Mutex mutex_;
  Condition changed_;  // NOLINT: a condition guards nothing
  std::map<std::string, Entry> all_ GUARDED_BY(mutex_);
  std::deque<Wanted> wanted_ GUARDED_BY(mutex_);
  std::deque<std::pair<std::shared_ptr<Lease>, LayoutRequest>> offers_ GUARDED_BY(mutex_);
  uint64_t uses_ GUARDED_BY(mutex_) = 0;
  std::jthread thread_ GUARDED_BY(mutex_);  // begins with the first view
};

}  // namespace gantry::nixl
