#include "connectors/nixl/agent/peer_agents.h"

#include <algorithm>
#include <array>

#include "connectors/nixl/agent/plugin_log.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::nixl {
namespace {

constexpr uint64_t kPeerWaitMs = 1'000;

// Returns the peer's state.
Result<std::string> PutPeer(const Lease& lease, const AgentCard& card, uint64_t wait_ms) {
  static constexpr std::array<std::string_view, 1> kKeys = {"state"};
  wire::BodyWriter body(wire::BodyFormat::kJson);
  body.BeginObject().Field("address", card.address).OptionalField("node_id", card.node_id);
  ASSIGN_OR_RETURN(
      const std::string answer,
      lease.Request("PUT", "/v1/peers/" + card.peer + "?wait_ms=" + std::to_string(wait_ms),
                    body.EndObject().Take(), wait_ms));
  const auto fields = wire::BodyFields::Read(answer, kKeys);
  return fields ? fields->Text("state") : "";
}

Status Introduce(const Lease& lease, const AgentCard& card, uint64_t wait_ms) {
  if (PeerNameOf(card, lease).empty()) return {};
  if (card.address.empty()) {
    return Fail(ErrorCode::kPeerUnavailable,
                "the sidecar " + card.peer + " of agent '" + card.agent + "' has no address",
                "start it with --peer-listen, or in the same node directory");
  }
  ASSIGN_OR_RETURN(const std::string state, PutPeer(lease, card, wait_ms));
  if (state != "up") {
    plugin_log::Warning("the sidecar " + card.peer + " of agent '" + card.agent + "' is " + state +
                        " at " + card.address);
  }
  return {};
}

}  // namespace

std::string PeerNameOf(const AgentCard& card, const Lease& lease) {
  return card.peer == lease.sidecar().name ? "" : card.peer;
}

Status PeerAgents::Load(const std::shared_ptr<Lease>& lease, const AgentCard& card) {
  RETURN_IF_ERROR(Introduce(*lease, card, kPeerWaitMs));
  const MutexLock lock(mutex_);
  all_.insert_or_assign(card.agent, card);
  return {};
}

Status PeerAgents::Forget(const std::shared_ptr<Lease>& lease, const std::string& agent) {
  std::string peer;
  {
    const MutexLock lock(mutex_);
    const auto found = all_.find(agent);
    if (found == all_.end())
      return Fail(ErrorCode::kNotFound, "agent '" + agent + "' is not loaded");
    peer = found->second.peer;
    all_.erase(found);
    const bool is_used = std::any_of(all_.begin(), all_.end(),
                                     [&](const auto& other) { return other.second.peer == peer; });
    if (is_used || lease == nullptr || lease->IsSilent() || peer == lease->sidecar().name)
      return {};
  }
  // Other workloads of the sidecar may use a peer that is up; one that is not would stay for ever.
  static constexpr std::array<std::string_view, 1> kKeys = {"state"};
  const auto answer = lease->Request("GET", "/v1/peers/" + peer, "", 0);
  const auto fields = answer ? wire::BodyFields::Read(*answer, kKeys) : std::nullopt;
  if (fields && fields->Text("state") != "up")
    static_cast<void>(lease->Request("DELETE", "/v1/peers/" + peer, "", 0));
  return {};
}

std::optional<AgentCard> PeerAgents::Find(const std::string& agent) const {
  const MutexLock lock(mutex_);
  const auto found = all_.find(agent);
  if (found == all_.end()) return std::nullopt;
  return found->second;
}

void PeerAgents::LoadAll(const std::shared_ptr<Lease>& lease) {
  std::map<std::string, AgentCard> all;
  {
    const MutexLock lock(mutex_);
    all = all_;
  }
  for (const auto& [agent, card] : all) {
    if (const Status told = Introduce(*lease, card, 0); !told)
      plugin_log::Warning("agent '" + agent + "' is not reached", told.error());
  }
}

}  // namespace gantry::nixl
