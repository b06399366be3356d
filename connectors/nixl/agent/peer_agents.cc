#include "connectors/nixl/agent/peer_agents.h"

#include <algorithm>
#include <array>

#include "connectors/nixl/agent/plugin_log.h"
#include "lib/codec/body_fields.h"
#include "lib/codec/body_writer.h"

namespace gantry::nixl {
namespace {

constexpr uint64_t kPeerWaitMs = 1'000;

struct KnownPeer {
  std::string address;
  std::string state;
};

Result<KnownPeer> ReadPeer(const std::string& answer) {
  static constexpr std::array<std::string_view, 2> kKeys = {"address", "state"};
  const auto fields = wire::BodyFields::Read(answer, kKeys);
  if (!fields) return Fail(ErrorCode::kVersionMismatch, "the sidecar's answer is no peer");
  return KnownPeer{fields->Text("address"), fields->Text("state")};
}

// Nothing: the sidecar has no such peer.
Result<std::optional<KnownPeer>> GetPeer(const Lease& lease, const std::string& name) {
  const auto answer = lease.Request("GET", "/v1/peers/" + name, "", 0);
  if (!answer && answer.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!answer) return Fail(answer.error());
  ASSIGN_OR_RETURN(KnownPeer known, ReadPeer(*answer));
  return known;
}

Result<KnownPeer> PutPeer(const Lease& lease, const std::string& name, const std::string& address,
                          const std::string& node_id, uint64_t wait_ms) {
  wire::BodyWriter body(wire::BodyFormat::kJson);
  body.BeginObject().Field("address", address).OptionalField("node_id", node_id);
  ASSIGN_OR_RETURN(const std::string answer,
                   lease.Request("PUT", "/v1/peers/" + name + "?wait_ms=" + std::to_string(wait_ms),
                                 body.EndObject().Take(), wait_ms));
  return ReadPeer(answer);
}

}  // namespace

std::string PeerNameOf(const AgentCard& card, const Lease& lease) {
  return card.peer == lease.sidecar().name ? "" : card.peer;
}

Status PeerAgents::Introduce(const Lease& lease, const AgentCard& card, uint64_t wait_ms) {
  if (PeerNameOf(card, lease).empty()) return {};
  ASSIGN_OR_RETURN(auto known, GetPeer(lease, card.peer));
  // Other agents of the sidecar use a peer that is there, and metadata comes from anybody: such a
  // peer keeps its address, and is only waited for.
  const bool is_own = !known || IsMade(card.peer);
  if (known && !is_own && known->state != "up") {
    ASSIGN_OR_RETURN(known, PutPeer(lease, card.peer, known->address, "", wait_ms));
  } else if (is_own) {
    if (card.address.empty()) {
      return Fail(ErrorCode::kPeerUnavailable,
                  "the sidecar " + card.peer + " of agent '" + card.agent + "' has no address",
                  "start it with --peer-listen, or in the same node directory");
    }
    {
      const MutexLock lock(mutex_);
      made_.insert(card.peer);
    }
    ASSIGN_OR_RETURN(known, PutPeer(lease, card.peer, card.address, card.node_id, wait_ms));
  }
  if (known->state != "up") {
    plugin_log::Warning("the sidecar " + card.peer + " of agent '" + card.agent + "' is " +
                        known->state + " at " + known->address);
  }
  return {};
}

bool PeerAgents::IsMade(const std::string& peer) const {
  const MutexLock lock(mutex_);
  return made_.contains(peer);
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
    if (is_used || made_.erase(peer) == 0 || lease == nullptr || lease->IsSilent()) return {};
  }
  // Other agents of the sidecar may use a peer that is up; one that is not would stay for ever.
  const auto known = GetPeer(*lease, peer);
  if (known && *known && (*known)->state != "up")
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
    made_.clear();  // at this lease's sidecar others may have made them
  }
  for (const auto& [agent, card] : all) {
    if (const Status told = Introduce(*lease, card, 0); !told)
      plugin_log::Warning("agent '" + agent + "' is not reached", told.error());
  }
}

}  // namespace gantry::nixl
