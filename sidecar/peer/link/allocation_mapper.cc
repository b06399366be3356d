#include "sidecar/peer/link/allocation_mapper.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sidecar/peer/link/buffer_import.h"

namespace gantry::peer {
namespace {

bool IsOutOfReach(const Error& error) {
  return error.code == ErrorCode::kPathUnavailable || error.code == ErrorCode::kNotFound;
}

// Its owner's sidecar takes memory that this one does not.
Error ExplainedToUsers(Error error) {
  if (error.code != ErrorCode::kFdNotSealed) return error;
  return {ErrorCode::kPathUnavailable,
          "the remote buffer is a file that its owner can truncate, and this sidecar maps none "
          "without --unsealed-memory"};
}

bool MayBeMapped(const wire::PeerBuffer& buffer) {
  return std::any_of(buffer.paths.begin(), buffer.paths.end(), [](const wire::PathReport& report) {
    return report.available && InfoOf(report.path).shares_memory;
  });
}

SessionMappings::Key KeyOf(const wire::PeerBuffer& buffer, const wire::PeerAllocation& allocation) {
  return {allocation.id, buffer.access.remote_write};
}

}  // namespace

// The allocations of some buffers, each once.
struct AllocationMapper::Plan {
  Plan(const SessionMappings& mappings, const std::vector<wire::PeerBuffer>& buffers) {
    for (const wire::PeerBuffer& buffer : buffers) {
      if (!MayBeMapped(buffer)) continue;
      for (const wire::PeerAllocation& allocation : buffer.allocations) {
        const SessionMappings::Key key = KeyOf(buffer, allocation);
        const auto [place, is_new] = here.try_emplace(key, mappings.Find(key));
        if (!is_new || place->second != nullptr) continue;
        wanted.push_back({buffer.id, buffer.generation, allocation.id, key.second});
        to_map.push_back(allocation);
      }
    }
  }

  // Gives the allocations of a buffer their mappings.
  Status Assign(const wire::PeerBuffer& buffer, engine::RemoteBuffer* imported) const {
    for (size_t i = 0; i < buffer.allocations.size(); ++i) {
      const wire::PeerAllocation& allocation = buffer.allocations[i];
      const auto found = here.find(KeyOf(buffer, allocation));
      if (found == here.end()) continue;
      if (found->second == nullptr) {
        imported->allocations[i].why_not_mapped = refused.at(allocation.id);
        continue;
      }
      if (found->second->size() != allocation.size) {
        return Fail(ErrorCode::kMalformedBody, "the peer says two sizes of one allocation");
      }
      imported->allocations[i].mapped = found->second;
    }
    return {};
  }

  std::map<SessionMappings::Key, SessionMappings::Mapping> here;  // null: not mapped
  std::vector<wire::WantedAllocation> wanted;
  std::vector<wire::PeerAllocation> to_map;  // those that are wanted, in the same order
  std::map<uint64_t, std::string> refused;   // why an allocation cannot be mapped, by its id
};

AllocationMapper::AllocationMapper(std::string peer, memory::MemoryMapper& mapper,
                                   std::shared_ptr<registry::FdBudget> fds)
    : peer_(std::move(peer)), mapper_(mapper), fds_(std::move(fds)) {}

Status AllocationMapper::MapAll(PeerSession& session, const std::vector<wire::PeerBuffer>& buffers,
                                std::vector<engine::RemoteBuffer>* imported,
                                TimePoint deadline) const {
  Plan plan(session.mappings(), buffers);
  if (!plan.wanted.empty()) RETURN_IF_ERROR(MapWanted(session, &plan, deadline));
  for (size_t i = 0; i < buffers.size(); ++i) {
    RETURN_IF_ERROR(plan.Assign(buffers[i], &(*imported)[i]));
  }
  return {};
}

Status AllocationMapper::MapWanted(PeerSession& session, Plan* plan, TimePoint deadline) const {
  ASSIGN_OR_RETURN(const auto fds, FetchDescriptors(session, plan->wanted, deadline));
  for (size_t i = 0; i < fds.size(); ++i) {
    const SessionMappings::Key key(plan->to_map[i].id, plan->wanted[i].writable);
    auto mapped = MapDescriptor(mapper_, plan->to_map[i], fds[i], key.second,
                                std::to_string(session.facts().owner.generation));
    if (!mapped) mapped = Fail(ExplainedToUsers(std::move(mapped).error()));
    // A GPU may be out of reach from here. Then another path is taken, or the peer executes.
    if (!mapped && IsOutOfReach(mapped.error())) {
      plan->refused[key.first] = mapped.error().message;
      continue;
    }
    if (!mapped) return Fail(std::move(mapped).error().WithContext("peer '" + peer_ + "'"));
    session.mappings().Add(key, *mapped);
    plan->here[key] = *std::move(mapped);
  }
  return {};
}

Result<std::vector<std::shared_ptr<const UniqueFd>>> AllocationMapper::FetchDescriptors(
    PeerSession& session, const std::vector<wire::WantedAllocation>& wanted,
    TimePoint deadline) const {
  if (!fds_->Take(wanted.size())) {
    return Fail(
        ErrorCode::kResourceExhausted,
        std::to_string(wanted.size()) + " more descriptors of peer '" + peer_ +
            "' would be over the limit of " + std::to_string(fds_->fds_max()),
        "use fewer or larger allocations at a time, DELETE peers that are not needed, or raise "
        "--peer-fds-max, which is an eighth of the process's limit of descriptors at most");
  }
  auto fds = session.client()->FetchDescriptors(wanted, deadline);
  if (!fds) {
    fds_->GiveBack(wanted.size());
    return session.Failure(std::move(fds).error());
  }
  std::vector<std::shared_ptr<const UniqueFd>> counted;
  for (UniqueFd& fd : *fds) counted.push_back(registry::CountedFd(std::move(fd), fds_));
  return counted;
}

}  // namespace gantry::peer
