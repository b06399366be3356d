// An agent's card and its memory's card, which travel in NIXL's metadata. Both come back from other
// machines: reading trusts nothing. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"

namespace gantry::nixl {

// The connection info: where the agent's workload is.
struct AgentCard {
  std::string agent;
  std::string workload;
  std::string peer;     // its sidecar's name
  std::string node_id;  // boot id
  std::string address;  // of its sidecar for other nodes, or its socket; may be empty
  bool operator==(const AgentCard&) const = default;
};
std::string TextOf(const AgentCard& card);
Result<AgentCard> ReadAgentCard(std::string_view text);

// The public data of one registration.
struct MemoryCard {
  std::string buffer;
  uint64_t base = 0;
  uint64_t bytes = 0;
  bool operator==(const MemoryCard&) const = default;
};
std::string TextOf(const MemoryCard& card);
Result<MemoryCard> ReadMemoryCard(std::string_view text);

// An agent's workload: the same for the same agent, and another one for another agent.
std::string WorkloadOf(std::string_view agent);

}  // namespace gantry::nixl
