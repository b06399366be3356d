// The ways of a part's bytes once there are slices for them: between GPUs and slices here, between
// slices and GPUs at the peer, and by RDMA from one side to the other. Stateless; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/wire/stage_types.h"
#include "sidecar/copy/staging_copier.h"
#include "sidecar/plan/move_plan.h"
#include "sidecar/transport/bounce/bounce_cutter.h"
#include "sidecar/transport/bounce/remote_stage.h"

namespace gantry::transport {

// This side's staging memory, as RDMA devices have it.
struct BounceStage {
  std::shared_ptr<const memory::MappedAllocation> memory;
  std::shared_ptr<const memory::NicMemory> on_nics;
  uint64_t offset = 0;  // of slice 0 in `memory`
};

struct BounceRoutes {
  std::vector<StagedRange> local;                // between GPUs here and their slices
  wire::StagedMove remote;                       // without time and direction
  std::shared_ptr<const MovePlan> between_them;  // for rdma
};

// `local_slices` and `remote_slices`: as many as its staged bytes take. `lent` may be null where
// the part has none to stage there.
BounceRoutes RoutesOf(const BouncePart& part, const MovePlan& plan, const BounceStage& stage,
                      std::span<const uint32_t> local_slices, const RemoteStage::Lent* lent,
                      std::span<const uint32_t> remote_slices);

}  // namespace gantry::transport
