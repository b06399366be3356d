// What a peer's copy between its stage and buffers names of this sidecar's memory, found and
// checked. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/stage_types.h"
#include "sidecar/copy/staging_copier.h"
#include "sidecar/transport/target_buffers.h"

namespace gantry::transport {

// The uses keep the memory there; they go last.
struct ResolvedMove {
  std::vector<std::unique_ptr<TargetBuffer>> uses;
  std::vector<StagedRange> ranges;
};

// `places`: where the move's slices begin in the staging memory, in their order, each of
// kStagingSliceBytes. REQUIRES that the ranges' bytes fill them. Every range is checked against
// exactly its buffer, and the access of the session. Memory of GPUs alone: that of the host is on
// the devices themselves, or has another path.
Result<ResolvedMove> ResolveMove(TargetBuffers& buffers, std::string_view session,
                                 const wire::StagedMove& move, std::span<const uint64_t> places);

}  // namespace gantry::transport
