// Maps a peer's allocations here: fetches their descriptors and hands them to the memory mapper.
// Thread-safe; one call at a time for a session.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/peer/link/peer_session.h"
#include "sidecar/registry/fd_budget.h"
#include "sidecar/remote/peer_gateway.h"

namespace gantry::peer {

class AllocationMapper {
 public:
  // `fds` counts the descriptors of all peers. The mapper outlives this and all mappings.
  AllocationMapper(std::string peer, memory::MemoryMapper& mapper,
                   std::shared_ptr<registry::FdBudget> fds);

  // Maps the allocations of `buffers` that are not mapped in the session yet. Each allocation of
  // (*imported)[i], which is made from buffers[i], gets its mapping or the reason why it has none.
  Status MapAll(PeerSession& session, const std::vector<wire::PeerBuffer>& buffers,
                std::vector<engine::RemoteBuffer>* imported, TimePoint deadline) const;

 private:
  struct Plan;

  Status MapWanted(PeerSession& session, Plan* plan, TimePoint deadline) const;
  // Returns as many as wanted, in their order.
  Result<std::vector<std::shared_ptr<const UniqueFd>>> FetchDescriptors(
      PeerSession& session, const std::vector<wire::WantedAllocation>& wanted,
      TimePoint deadline) const;

  const std::string peer_;
  memory::MemoryMapper& mapper_;
  const std::shared_ptr<registry::FdBudget> fds_;
};

}  // namespace gantry::peer
