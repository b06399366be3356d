#include "connectors/nixl/nixl_engine.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "connectors/nixl/agent/plugin_log.h"
#include "connectors/nixl/transfer/nixl_status.h"

namespace gantry::nixl {
namespace {

// Fewer ranges are named as quickly as blocks.
constexpr size_t kRangesMin = 32;

// Runs `work`, which returns a Status or a NixlStatus. `what` begins the line of its failure.
template <typename Work>
NixlStatus Guard(const char* what, Work work,
                 NixlStatus (*status_of)(const Error&) = StatusOf) noexcept {
  try {
    try {
      if constexpr (std::is_same_v<decltype(work()), NixlStatus>) {
        return work();
      } else {
        const Status done = work();
        if (done) return NixlStatus::kSuccess;
        static log::RateLimiter limiter;  // one for each caller of this template
        plugin_log::Seldom(limiter, what, done.error());
        return status_of(done.error());
      }
    } catch (const std::exception& failure) {
      plugin_log::Warning(what + std::string(": ") + failure.what());
    }
  } catch (...) {
    return NixlStatus::kBackend;  // no memory is left, not even for a line
  }
  return NixlStatus::kBackend;
}

}  // namespace

NixlEngine::NixlEngine(const InitParams& params, std::unique_ptr<GantryAgent> agent)
    : BackendEngine(params), owner_(::getpid()), agent_(std::move(agent)) {}

NixlStatus NixlEngine::registerMem(const BlobDesc& memory, const MemoryType& type,
                                   BackendMd*& out) {
  const auto work = [&]() -> Status {
    ASSIGN_OR_RETURN(const auto lease, agent_->lease());
    ASSIGN_OR_RETURN(auto registered, agent_->memory().Register(lease, memory, type));
    out = new LocalMd(std::move(registered));
    return {};
  };
  return Guard("memory is not registered", work, StatusOfOwn);
}

NixlStatus NixlEngine::deregisterMem(BackendMd* memory) {
  const auto work = [&]() -> Status {
    auto* local = static_cast<LocalMd*>(memory);
    // NIXL forgets it after an error all the same. The keeper tries again until the memory is
    // unused.
    RETURN_IF_ERROR(agent_->memory().Unregister(local->memory()));
    delete local;
    return {};
  };
  return Guard("memory is not unregistered", work, StatusOfOwn);
}

NixlStatus NixlEngine::connect(const std::string& agent) {
  return Guard("an agent is not connected", [&]() -> Status {
    ASSIGN_OR_RETURN(const AgentCard card, agent_->CardOf(agent));
    if (agent == agent_->name()) return {};
    ASSIGN_OR_RETURN(const auto lease, agent_->lease());
    return agent_->peers().Load(lease, card);
  });
}

NixlStatus NixlEngine::disconnect(const std::string& agent) {
  if (agent == agent_->name()) return NixlStatus::kSuccess;
  return Guard("an agent is not forgotten", [&]() -> Status {
    const auto lease = agent_->lease();
    return agent_->peers().Forget(lease ? *lease : nullptr, agent);
  });
}

NixlStatus NixlEngine::unloadMD(BackendMd* memory) {
  delete memory;
  return NixlStatus::kSuccess;
}

NixlStatus NixlEngine::prepXfer(const Operation& operation, const MetaList& local,
                                const MetaList& remote, const std::string& agent,
                                BackendReqH*& handle, const OptionalArgs* /*options*/) const {
  return Guard("a transfer is not prepared", [&]() -> Status {
    RETURN_IF_ERROR(agent_->CardOf(agent));
    ASSIGN_OR_RETURN(TransferRanges ranges, RangesOf(local, remote, agent));
    auto blocks = BlocksOf(ranges);
    ranges.ranges = Merged(ranges.ranges);
    if (blocks && ranges.ranges.size() < kRangesMin) blocks.reset();
    auto made = std::make_shared<NixlTransfer>(operation, std::move(ranges), std::move(blocks),
                                               agent, agent_->config());
    made->Hold();
    handle = made.get();
    return {};
  });
}

NixlStatus NixlEngine::postXfer(const Operation& /*operation*/, const MetaList& /*local*/,
                                const MetaList& /*remote*/, const std::string& /*agent*/,
                                BackendReqH*& handle, const OptionalArgs* options) const {
  auto& transfer = *static_cast<NixlTransfer*>(handle);
  if (transfer.is_active()) return NixlStatus::kRepostActive;
  const bool notifies = options != nullptr && options->has_notification;
  const NixlStatus posted = Guard("a transfer is not posted", [&]() -> Status {
    return agent_->Post(transfer, notifies ? &options->notification : nullptr);
  });
  return posted == NixlStatus::kSuccess ? checkXfer(handle) : posted;
}

NixlStatus NixlEngine::checkXfer(BackendReqH* handle) const {
  return Guard("a transfer is not looked at",
               [&]() -> NixlStatus { return agent_->Look(*static_cast<NixlTransfer*>(handle)); });
}

NixlStatus NixlEngine::releaseReqH(BackendReqH* handle) const {
  return Guard("a transfer is not released", [&]() -> NixlStatus {
    auto* transfer = static_cast<NixlTransfer*>(handle);
    // As long as bytes may move the caller keeps the handle, and the blocks. NIXL forgets a handle
    // after the second refusal all the same: then the reaper has it until it is over.
    const bool is_second = transfer->is_active() && transfer->was_refused();
    if (!transfer->Stop()) {
      const auto kept = transfer->shared_from_this();
      agent_->reaper().Take(kept);
      if (is_second) transfer->Drop();
      static log::RateLimiter limiter;
      plugin_log::Seldom(limiter, "a transfer with agent '" + kept->agent() +
                                      "' is not released: its bytes may still move");
      return NixlStatus::kRepostActive;
    }
    transfer->Drop();
    return NixlStatus::kSuccess;
  });
}

NixlStatus NixlEngine::getPublicData(const BackendMd* memory, std::string& data) const {
  return Guard("memory is not described", [&]() -> Status {
    data = TextOf(static_cast<const LocalMd*>(memory)->memory()->card());
    return {};
  });
}

NixlStatus NixlEngine::getConnInfo(std::string& info) const {
  return Guard("the agent is not described", [&]() -> Status {
    ASSIGN_OR_RETURN(const AgentCard card, agent_->Card());
    info = TextOf(card);
    return {};
  });
}

NixlStatus NixlEngine::loadRemoteConnInfo(const std::string& agent, const std::string& info) {
  return Guard("an agent's metadata is refused", [&]() -> Status {
    ASSIGN_OR_RETURN(AgentCard card, ReadAgentCard(info));
    card.agent = agent;
    if (card.workload != WorkloadOf(agent)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "the metadata of agent '" + agent + "' names the workload " + card.workload,
                  "load it under the agent's own name");
    }
    ASSIGN_OR_RETURN(const auto lease, agent_->lease());
    return agent_->peers().Load(lease, card);
  });
}

NixlStatus NixlEngine::loadRemoteMD(const BlobDesc& memory, const MemoryType& /*type*/,
                                    const std::string& agent, BackendMd*& out) {
  return Guard("a registration of an agent is refused", [&]() -> Status {
    ASSIGN_OR_RETURN(MemoryCard card, ReadMemoryCard(memory.blob));
    out = new RemoteMd(agent, std::move(card));
    return {};
  });
}

NixlStatus NixlEngine::loadLocalMD(BackendMd* memory, BackendMd*& out) {
  return Guard("a registration is not loaded", [&]() -> Status {
    out = new RemoteMd(agent_->name(), static_cast<LocalMd*>(memory)->memory()->card());
    return {};
  });
}

NixlStatus NixlEngine::getNotifs(Notifications& notifications) {
  return Guard("notifications are not taken", [&]() -> Status {
    agent_->inbox().TakeAll(notifications);
    return {};
  });
}

NixlStatus NixlEngine::genNotif(const std::string& agent, const std::string& message) const {
  return Guard("a notification is not sent",
               [&]() -> Status { return agent_->Notify(agent, message); });
}

NixlStatus NixlEngine::estimateXferCost(const Operation& /*operation*/, const MetaList& /*local*/,
                                        const MetaList& /*remote*/, const std::string& /*agent*/,
                                        BackendReqH* const& handle,
                                        std::chrono::microseconds& duration,
                                        std::chrono::microseconds& margin, CostMethod& method,
                                        const void* /*options*/) const {
  return Guard("a transfer's cost is not estimated", [&]() -> Status {
    const auto estimate = agent_->Cost(*static_cast<const NixlTransfer*>(handle));
    duration = estimate.duration;
    margin = estimate.margin;
    method = CostMethod::kAnalytical;
    return {};
  });
}

}  // namespace gantry::nixl
