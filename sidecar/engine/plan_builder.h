// From block ids or ranges to merged and cut segments: every check of a transfer's content, then
// the plan. Pure functions over immutable inputs; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/engine/segment_budget.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/transport/move_plan.h"

namespace gantry::engine {

// One buffer of one side, as the plan needs it.
struct PlanBuffer {
  std::string name;  // for errors
  const memory::PieceMap* pieces = nullptr;
  std::optional<wire::BlockLayout> layout;
  // Index in the plan's allocation list for each allocation index of the pieces.
  std::vector<uint32_t> allocations;
};

struct PlanLimits {
  uint64_t descriptors_max = 1'048'576;
  uint64_t chunk_bytes_max = 1 << 20;
  uint64_t segments_max = 1'048'576;  // of one plan
};

struct PlanInput {
  const wire::TransferRequest* request = nullptr;
  std::vector<PlanBuffer> local;
  std::vector<PlanBuffer> remote;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local_allocations;
  std::vector<transport::RemoteAllocation> remote_allocations;
};

struct BuiltPlan {
  std::shared_ptr<const transport::MovePlan> plan;
  uint64_t descriptors_out = 0;  // after merging contiguous runs, before cutting
};

// Errors name the field of the request, e.g. /local_blocks/7. The reservation covers the segments.
Result<BuiltPlan> BuildPlan(PlanInput input, const PlanLimits& limits,
                            SegmentReservation* reservation);

}  // namespace gantry::engine
