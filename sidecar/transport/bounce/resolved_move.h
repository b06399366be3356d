// Resolves and checks the local memory that a peer's staged copy names. Stateless; thread-safe.
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

// The uses keep the memory mapped; they are destroyed last.
struct ResolvedMove {
  std::vector<std::unique_ptr<TargetBuffer>> uses;
  std::vector<StagedRange> ranges;
};

// `places` are the offsets of the move's slices in the staging memory, in order, each of
// kStagingSliceBytes. REQUIRES that the ranges' bytes fill them. Checks every range against its
// buffer, and the session's access. Accepts GPU memory only: host memory is on the RDMA devices
// itself, or has another path.
Result<ResolvedMove> ResolveMove(TargetBuffers& buffers, std::string_view session,
                                 const wire::StagedMove& move, std::span<const uint64_t> places);

}  // namespace gantry::transport
