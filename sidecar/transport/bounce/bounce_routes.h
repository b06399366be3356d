// The routes of a part's bytes once it has slices: GPUs and slices here, slices and GPUs at the
// peer, and RDMA between the sides. Stateless; thread-safe.
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

// This side's staging memory and its RDMA registration.
struct BounceStage {
  std::shared_ptr<const memory::MappedAllocation> memory;
  std::shared_ptr<const memory::NicMemory> nic_memory;
  uint64_t offset = 0;  // offset of slice 0 in `memory`
};

struct BounceRoutes {
  std::vector<StagedRange> local;                // between local GPUs and their slices
  wire::StagedMove remote;                       // time and direction not set
  std::shared_ptr<const MovePlan> between_them;  // the rdma plan
};

// The slices must hold the part's staged bytes of their side. `stage_lease` may be null when the
// part stages nothing at the peer.
BounceRoutes RoutesOf(const BouncePart& part, const MovePlan& plan, const BounceStage& stage,
                      std::span<const uint32_t> local_slices,
                      const RemoteStage::StageLease* stage_lease,
                      std::span<const uint32_t> remote_slices);

}  // namespace gantry::transport
