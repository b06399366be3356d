// Resolves and checks the local buffers that a tcp request names. Stateless; thread-safe.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/transport/target_buffers.h"
#include "sidecar/transport/tcp/channel/scatter_list.h"
#include "sidecar/transport/tcp/channel/staged_payload.h"
#include "sidecar/transport/tcp/channel/tcp_frame.h"

namespace gantry::transport {

// The memory of a request, each range checked against its buffer. The uses keep it mapped.
struct ResolvedTarget {
  ResolvedTarget() = default;
  ResolvedTarget(ResolvedTarget&&) = default;
  ResolvedTarget& operator=(ResolvedTarget&& other) noexcept {
    staged = std::move(other.staged);  // before the uses: their end may unmap
    memory = std::move(other.memory);
    uses = std::move(other.uses);
    priority = other.priority;
    return *this;
  }

  std::vector<std::unique_ptr<TargetBuffer>> uses;
  ScatterList memory;
  // Set when some of it lies on GPUs: `memory` stays empty until slices are assigned.
  std::unique_ptr<StagedPayload> staged;
  int priority = 0;  // of the request's transfer
};
// `staging` is for GPU memory; null: requests for GPU memory are refused.
Result<ResolvedTarget> ResolveTarget(TargetBuffers& buffers, std::string_view session,
                                     const RequestBody& request, bool for_write,
                                     StagingHalf* staging);

}  // namespace gantry::transport
