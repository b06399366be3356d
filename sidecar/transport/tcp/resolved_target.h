// What a request over tcp names of this sidecar's own buffers, found and checked. Stateless;
// thread-safe.
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
