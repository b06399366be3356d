// The agents whose metadata was loaded, and their sidecars as the own one was told of them. Peers
// that others made are used as they are.
// Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "connectors/nixl/agent/agent_card.h"
#include "connectors/nixl/agent/lease.h"
#include "lib/base/mutex.h"

namespace gantry::nixl {

class PeerAgents {
 public:
  // Tells the sidecar where the agent's is, and waits for it a little. That it is not there yet is
  // no error: transfers say so.
  Status Load(const std::shared_ptr<Lease>& lease, const AgentCard& card);
  // kNotFound where it was never loaded.
  Status Forget(const std::shared_ptr<Lease>& lease, const std::string& agent);
  std::optional<AgentCard> Find(const std::string& agent) const;
  // At another lease.
  void LoadAll(const std::shared_ptr<Lease>& lease);

 private:
  Status Introduce(const Lease& lease, const AgentCard& card, uint64_t wait_ms);
  // This agent told the sidecar of the peer.
  bool IsMade(const std::string& peer) const;

  mutable Mutex mutex_;
  std::map<std::string, AgentCard> all_ GUARDED_BY(mutex_);
  std::set<std::string> made_ GUARDED_BY(mutex_);  // peers
};

// The agent's sidecar as `lease` names it: "" for its own.
std::string PeerNameOf(const AgentCard& card, const Lease& lease);

}  // namespace gantry::nixl
