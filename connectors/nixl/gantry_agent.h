// One NIXL agent as a workload: its lease, memory, peers and notifications. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "connectors/nixl/agent/inbox.h"
#include "connectors/nixl/agent/lease_keeper.h"
#include "connectors/nixl/agent/local_memory.h"
#include "connectors/nixl/agent/peer_agents.h"
#include "connectors/nixl/transfer/block_views.h"
#include "connectors/nixl/transfer/nixl_transfer.h"
#include "connectors/nixl/transfer/path_log.h"
#include "connectors/nixl/transfer/transfer_costs.h"
#include "connectors/nixl/transfer/transfer_reaper.h"
#include "lib/base/log_rate_limiter.h"

namespace gantry::nixl {

class GantryAgent {
 public:
  static Result<std::unique_ptr<GantryAgent>> Open(const PluginConfig& config, std::string name);

  const std::string& name() const { return name_; }
  LocalMemoryTable& memory() { return memory_; }
  PeerAgents& peers() { return peers_; }
  Inbox& inbox() { return inbox_; }
  TransferReaper& reaper() { return reaper_; }
  const PluginConfig& config() const { return config_; }
  // kSidecarLost while there is none.
  Result<std::shared_ptr<Lease>> lease() const;

  Result<AgentCard> Card() const;
  // The card of this agent itself, or of one that was loaded.
  Result<AgentCard> CardOf(const std::string& agent) const;

  Status Notify(const std::string& agent, const std::string& text);
  // `text` null: without a notification.
  Status Post(NixlTransfer& transfer, const std::string* text);
  NixlStatus Look(NixlTransfer& transfer);
  TransferCosts::Estimate Cost(const NixlTransfer& transfer) const;

 private:
  GantryAgent(const PluginConfig& config, std::string name)
      : config_(config),
        name_(std::move(name)),
        workload_(WorkloadOf(name_)),
        memory_(config_.adopts_private),
        views_(memory_) {}

  // A text of several parts is waited for, so that its receiver has it, or the engine an error.
  Status SendParts(const Lease& lease, const AgentCard& target,
                   const std::vector<std::string>& parts, size_t count);
  uint64_t NextNumber() { return numbers_.fetch_add(1); }

  const PluginConfig config_;
  const std::string name_;
  const std::string workload_;
  LocalMemoryTable memory_;
  PeerAgents peers_;
  Inbox inbox_;
  TransferCosts costs_;
  std::atomic<uint64_t> numbers_{0};  // of transfers and messages
  PathLog paths_;
  log::RateLimiter failed_log_;
  BlockViews views_;
  TransferReaper reaper_;
  std::unique_ptr<LeaseKeeper> keeper_;  // ends first, as it calls the rest; constant after Open
};

}  // namespace gantry::nixl
