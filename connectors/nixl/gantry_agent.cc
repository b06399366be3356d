#include "connectors/nixl/gantry_agent.h"

#include <utility>

#include "connectors/nixl/agent/own_address.h"
#include "connectors/nixl/agent/plugin_log.h"
#include "connectors/nixl/transfer/nixl_status.h"
#include "lib/base/random_id.h"

namespace gantry::nixl {

Result<std::unique_ptr<GantryAgent>> GantryAgent::Open(const PluginConfig& config,
                                                       std::string name) {
  if (name.size() > kAgentBytesMax)
    return Fail(ErrorCode::kInvalidArgument, "the agent's name is too long", {}, "agent");
  std::unique_ptr<GantryAgent> agent(new GantryAgent(config, std::move(name)));
  // Ids of an earlier agent of this name are not used again.
  agent->numbers_ = RandomGeneration() >> 8;
  LeaseKeeper::Listener listener;
  listener.renewed = [agent = agent.get()](const std::shared_ptr<Lease>& lease) {
    agent->memory_.RegisterAll(lease);
    agent->peers_.LoadAll(lease);
  };
  listener.repair = [agent = agent.get()](const std::shared_ptr<Lease>& lease) {
    return agent->memory_.RegisterMissing(lease);
  };
  listener.has_room = [agent = agent.get()] { return !agent->inbox_.is_full(); };
  listener.heard = [agent = agent.get()](const std::shared_ptr<Lease>& lease,
                                         const std::string& page) {
    agent->inbox_.Hear(page,
                       [&](const LayoutRequest& request) { agent->views_.Offer(lease, request); });
  };
  ASSIGN_OR_RETURN(agent->keeper_,
                   LeaseKeeper::Start(config, agent->workload_, std::move(listener)));
  return agent;
}

Result<std::shared_ptr<Lease>> GantryAgent::lease() const {
  if (auto lease = keeper_->lease()) return lease;
  return Fail(ErrorCode::kSidecarLost, "the sidecar at " + config_.run_dir + " is lost");
}

Result<AgentCard> GantryAgent::Card() const {
  ASSIGN_OR_RETURN(const auto held, lease());
  const SidecarInfo& sidecar = held->sidecar();
  std::string address = ReachableAddress(sidecar.tcp_address, config_.host);
  if (address.empty()) address = sidecar.peer_address;
  return AgentCard{name_, workload_, sidecar.name, sidecar.node_id, std::move(address)};
}

Result<AgentCard> GantryAgent::CardOf(const std::string& agent) const {
  if (agent == name_) return Card();
  if (auto card = peers_.Find(agent)) return *std::move(card);
  return Fail(ErrorCode::kNotFound, "the metadata of agent '" + agent + "' is not loaded");
}

Status GantryAgent::SendParts(const Lease& lease, const AgentCard& target,
                              const std::vector<std::string>& parts, size_t count) {
  const std::string peer = PeerNameOf(target, lease);
  const TimePoint deadline = Clock::now() + milliseconds(static_cast<int64_t>(config_.timeout_ms));
  const bool is_long = parts.size() > 1;
  const uint64_t deadline_ms = is_long ? config_.timeout_ms : 0;
  MessageOutcomes::Watch watch(inbox_.outcomes());
  std::vector<std::string> ids;
  for (size_t i = 0; i < count; ++i) {
    const gantry_message message = {target.workload.c_str(), parts[i].data(), parts[i].size(),
                                    nullptr};
    char* id = nullptr;
    RETURN_IF_ERROR(
        lease.Noted(Take(gantry_notify(lease.client(), peer.c_str(), &message, deadline_ms, &id))));
    const Owned<char> owned(id);
    ids.emplace_back(id);
  }
  return is_long ? watch.Await(ids, deadline) : Status();
}

Status GantryAgent::Notify(const std::string& agent, const std::string& text) {
  ASSIGN_OR_RETURN(const auto held, lease());
  if (held->IsSilent())
    return Fail(ErrorCode::kSidecarLost, "the sidecar gave no answer in time a moment ago");
  ASSIGN_OR_RETURN(const AgentCard target, CardOf(agent));
  ASSIGN_OR_RETURN(const auto parts, SplitMessage(name_, text, NextNumber()));
  return SendParts(*held, target, parts, parts.size());
}

Status GantryAgent::Post(NixlTransfer& transfer, const std::string* text) {
  ASSIGN_OR_RETURN(const auto held, lease());
  ASSIGN_OR_RETURN(AgentCard target, CardOf(transfer.agent()));
  NixlTransfer::Post post{held, std::move(target), workload_, {}, {}, nullptr};
  post.id = "nixl-" + std::to_string(NextNumber());
  if (text != nullptr) {
    // The receiver has the whole text only with the last part, which goes with the bytes.
    ASSIGN_OR_RETURN(auto parts, SplitMessage(name_, *text, NextNumber()));
    if (transfer.is_active())
      return Fail(ErrorCode::kConflict, "the transfer of before is not over");
    RETURN_IF_ERROR(SendParts(*held, post.target, parts, parts.size() - 1));
    post.message = std::move(parts.back());
  }
  const auto& blocks = transfer.blocks();
  if (blocks) post.view = views_.Find(held, post.target, *blocks);
  if (post.view == nullptr) return transfer.Submit(std::move(post));
  Status submitted = transfer.Submit(post);
  if (submitted || transfer.is_active()) return submitted;
  // The view is stale. Ranges name the buffers as they are now, or are refused.
  views_.Drop(post.target, *blocks);
  post.view = nullptr;
  return transfer.Submit(std::move(post));
}

NixlStatus GantryAgent::Look(NixlTransfer& transfer) {
  const auto end = transfer.Look();
  if (!end) return transfer.is_active() ? NixlStatus::kInProgress : NixlStatus::kNotPosted;
  if (end->error) {
    plugin_log::Seldom(failed_log_, "a transfer with agent '" + transfer.agent() + "' failed",
                       *end->error);
    const auto target = CardOf(transfer.agent());
    if (target && transfer.blocks()) views_.Drop(*target, *transfer.blocks());
  } else {
    costs_.Observe(transfer.agent(), transfer.bytes(), end->took);
  }
  paths_.Note(transfer, end->path);
  return end->status;
}

TransferCosts::Estimate GantryAgent::Cost(const NixlTransfer& transfer) const {
  return costs_.Of(transfer.agent(), transfer.bytes());
}

}  // namespace gantry::nixl
