// Acquires a peer's buffers: from the cache, or described by the peer, mapped here where that is
// wanted, and published in the cache. Thread-safe; callers block until their deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/peer_descriptor.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/peer/link/allocation_mapper.h"
#include "sidecar/peer/link/link_state.h"
#include "sidecar/peer/link/remote_buffer_cache.h"
#include "sidecar/peer/link/revocation_tracker.h"
#include "sidecar/peer/link/wake_signal.h"
#include "sidecar/registry/fd_budget.h"
#include "sidecar/remote/peer_gateway.h"

namespace gantry::peer {

class RemoteBufferFetcher {
 public:
  using Handle = RemoteBufferCache::Handle;

  // The parts of a link that the fetcher works with. They outlive it.
  struct Parts {
    LinkState& state;
    RevocationTracker& revocations;
    RemoteBufferCache& cache;
    WakeSignal& wake;  // the link's thread, which unmaps and acknowledges
  };

  RemoteBufferFetcher(std::string peer, const Parts& parts, memory::MemoryMapper& mapper,
                      std::shared_ptr<registry::FdBudget> fds);

  // See PeerGateway.
  Result<std::vector<Handle>> Acquire(const std::vector<wire::BufferReference>& references,
                                      engine::RemoteUse use, TimePoint deadline);
  void Refresh(const std::vector<uint64_t>& stale, const Error& why, TimePoint deadline);

 private:
  class Turn;

  // One attempt. A revocation that made it fail sets *revoked to the buffer's generation.
  Result<std::vector<Handle>> AcquireOnce(const std::vector<wire::BufferReference>& references,
                                          engine::RemoteUse use, TimePoint deadline,
                                          uint64_t* revoked);
  Status Fetch(PeerSession& session, const std::vector<wire::BufferReference>& references,
               engine::RemoteUse use, TimePoint deadline, uint64_t* revoked);
  Result<std::vector<wire::PeerBuffer>> Describe(
      const PeerSession& session, const std::vector<wire::BufferReference>& references,
      TimePoint deadline);
  Result<engine::RemoteBuffer> Import(const PeerSession& session, const wire::PeerBuffer& buffer);

  const std::string peer_;
  const uint64_t number_;  // random; distinguishes links of the same name
  LinkState& state_;
  RevocationTracker& revocations_;
  RemoteBufferCache& cache_;
  WakeSignal& wake_;
  const AllocationMapper allocations_;
};

}  // namespace gantry::peer
