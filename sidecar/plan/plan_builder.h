// From block ids or ranges to merged and cut segments: every check of a transfer's content, then
// the plan. Pure functions over immutable inputs; thread-safe.
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

  // For errors: a local one's name, or how a remote one is named. Of what is in use until the plan
  // is made; who lets go of that earlier names another (Delegate).
  std::string_view local;
  const wire::BufferReference* remote = nullptr;
  const memory::PieceMap* pieces = nullptr;
  std::optional<wire::BlockLayout> layout;
  // Index in the plan's allocation list for each allocation index of the pieces.
  absl::InlinedVector<uint32_t, 2> allocations;
};

// Pairs [first_pair, first_pair + pairs) of the input, and the blocks that move between them.
struct BlockGroup {
  size_t first_pair = 0;
  size_t pairs = 0;
  std::span<const uint64_t> local_blocks;
  std::span<const uint64_t> remote_blocks;
  const BlockShape* shape = nullptr;
  std::string field;  // where the request names the lists: "" or "/groups/3"
};

struct PlanInput {
  // Of the next local buffer.
  void AddOnNics(const memory::OnNics& on_nics) {
    if (on_nics) {
      local_on_nics.push_back(*on_nics);
    } else if (!why_not_on_nics) {
      why_not_on_nics = on_nics.error();
    }
  }

  const wire::TransferRequest* request = nullptr;
  std::vector<PlanBuffer> local;
  std::vector<PlanBuffer> remote;
  std::vector<BlockGroup> groups;  // of a view; empty: the request's own lists, for all pairs
  std::vector<std::shared_ptr<const memory::MappedAllocation>> local_allocations;
  std::vector<transport::RemoteAllocation> remote_allocations;
  std::vector<std::shared_ptr<const memory::NicMemory>> local_on_nics;
  std::optional<Error> why_not_on_nics;  // of a local buffer that RDMA devices do not have
  // The allocations are whole buffers: whether they share bytes only who resolves them can tell.
  bool of_whole_buffers = false;
  // Pieces that nobody else keeps.
  std::vector<std::shared_ptr<const memory::PieceMap>> kept_pieces;
};

struct BuiltPlan {
  std::shared_ptr<const transport::MovePlan> plan;
  uint64_t descriptors_out = 0;  // after merging contiguous runs, before cutting
};

// Errors name the field of the request, e.g. /local_blocks/7. The reservation covers the segments.
Result<BuiltPlan> BuildPlan(PlanInput input, const PlanLimits& limits,
                            SegmentReservation* reservation);

}  // namespace gantry::engine
