// Builds a plan from block ids or ranges: every check of a transfer's content, then merged and cut
// segments. Pure functions over immutable inputs; thread-safe.
#pragma once

#include <absl/container/inlined_vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/memory/piece_map.h"
#include "sidecar/plan/block_shape.h"
#include "sidecar/plan/move_plan.h"
#include "sidecar/plan/plan_limits.h"
#include "sidecar/plan/segment_budget.h"

namespace gantry::engine {

// One buffer of one side, as the plan needs it.
struct PlanBuffer {
  std::string Name() const { return remote ? FormatReference(*remote) : std::string(local); }

  // For error messages: a local buffer's name, or a remote buffer's reference. Both must stay valid
  // until the plan is built: Delegate releases buffers earlier and points to other strings.
  std::string_view local;
  const wire::BufferReference* remote = nullptr;
  const memory::PieceMap* pieces = nullptr;
  std::optional<wire::BlockLayout> layout;
  // Maps the pieces' allocation indices to indices in the plan's allocation list.
  absl::InlinedVector<uint32_t, 2> allocations;
};

// Pairs [first_pair, first_pair + pairs) of the input, and the blocks to move between them.
struct BlockGroup {
  size_t first_pair = 0;
  size_t pairs = 0;
  std::span<const uint64_t> local_blocks;
  std::span<const uint64_t> remote_blocks;
  const BlockShape* shape = nullptr;
  std::string field;  // prefix of the lists in the request: "" or "/groups/3"
};

struct PlanInput {
  // Adds the RDMA registration of the next local buffer, or the reason why there is none.
  void AddNicRegistration(const memory::NicRegistration& nic_registration) {
    if (nic_registration) {
      local_nic_memory.push_back(*nic_registration);
    } else if (!why_not_on_nics) {
      why_not_on_nics = nic_registration.error();
    }
  }

  const wire::TransferRequest* request = nullptr;
  std::vector<PlanBuffer> local;
  std::vector<PlanBuffer> remote;
  std::vector<BlockGroup> groups;  // from a view; empty: the request's own lists, for all pairs
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local_allocations;
  std::vector<transport::RemoteAllocation> remote_allocations;
  std::vector<std::shared_ptr<const memory::NicMemory>> local_nic_memory;
  std::optional<Error> why_not_on_nics;  // set when a local buffer has no RDMA registration
  // True when the allocations stand for whole buffers. The executing side then checks for overlap,
  // since only it knows the memory.
  bool of_whole_buffers = false;
  // Keeps pieces alive that have no other owner.
  std::vector<std::shared_ptr<const memory::PieceMap>> kept_pieces;
};

struct BuiltPlan {
  std::shared_ptr<const transport::MovePlan> plan;
  uint64_t descriptors_out = 0;  // after merging contiguous runs, before cutting
};

// Errors name the field of the request, e.g. /local_blocks/7. `reservation` accounts for the memory
// of the segments.
Result<BuiltPlan> BuildPlan(PlanInput input, const PlanLimits& limits,
                            SegmentReservation* reservation);

}  // namespace gantry::engine
