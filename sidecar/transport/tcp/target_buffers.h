// This sidecar's own buffers, as its peers' requests over tcp name them. Owned here, implemented
// above, over the registry. Thread-safe; called by io threads, so it never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/transport/tcp/scatter_list.h"
#include "sidecar/transport/tcp/staged_payload.h"
#include "sidecar/transport/tcp/tcp_frame.h"

namespace gantry::transport {

// A buffer in use: its memory stays mapped while this lives.
class TargetBuffer {
 public:
  virtual ~TargetBuffer() = default;
  virtual const memory::PieceMap& pieces() const = 0;
  virtual const std::vector<std::shared_ptr<const memory::MappedAllocation>>& allocations()
      const = 0;
};

class TargetBuffers {
 public:
  virtual ~TargetBuffers() = default;
  // The active buffer with this id and exactly this generation, when it grants this access to the
  // initiator of this session; else the reason: kNotFound, kStaleGeneration, kDraining,
  // kPermissionDenied.
  virtual Result<std::unique_ptr<TargetBuffer>> Acquire(std::string_view session,
                                                        std::string_view buffer_id,
                                                        uint64_t generation, bool for_write) = 0;
};

// The memory that a request names, every range checked against exactly its buffer. The uses keep
// it there.
struct ResolvedTarget {
  ResolvedTarget() = default;
  ResolvedTarget(ResolvedTarget&&) = default;
  ResolvedTarget& operator=(ResolvedTarget&& other) noexcept {
    staged = std::move(other.staged);  // before the uses: whoever waits for them unmaps
    memory = std::move(other.memory);
    uses = std::move(other.uses);
    priority = other.priority;
    return *this;
  }

  std::vector<std::unique_ptr<TargetBuffer>> uses;
  ScatterList memory;
  // Where some of it lies on GPUs: `memory` is empty until this is placed.
  std::unique_ptr<StagedPayload> staged;
  int priority = 0;  // of the request's transfer
};
// `staging`: for memory of GPUs; null: there is none, and a request for such memory is refused.
Result<ResolvedTarget> ResolveTarget(TargetBuffers& buffers, std::string_view session,
                                     const RequestBody& request, bool for_write,
                                     StagingHalf* staging);

}  // namespace gantry::transport
