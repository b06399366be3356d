#include "sidecar/plan/plan_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/plan/block_planner.h"
#include "sidecar/plan/overlap_check.h"
#include "sidecar/plan/segment_writer.h"

namespace gantry::engine {
namespace {

using wire::TransferRange;

// The request's own lists are one group of whole blocks.
Status AddOwnGroup(PlanInput* input) {
  static const BlockShape whole_blocks;
  if (input->local.size() != input->remote.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                "block ids pair local[k] with remote[k], but there are " +
                    std::to_string(input->local.size()) + " local and " +
                    std::to_string(input->remote.size()) + " remote buffers",
                {}, "/remote");
  }
  if (input->local.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the transfer names no buffers", {}, "/local");
  }
  input->groups.push_back({0, input->local.size(), input->request->local_blocks,
                           input->request->remote_blocks, &whole_blocks, ""});
  return {};
}

// The order in which items are planned, so that neighbours merge; empty when it is the request's.
template <typename Less>
std::vector<uint32_t> OrderOf(size_t count, Less less) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  if (std::is_sorted(order.begin(), order.end(), less)) return {};
  std::sort(order.begin(), order.end(), less);
  return order;
}

uint32_t ItemAt(const std::vector<uint32_t>& order, size_t position) {
  return order.empty() ? static_cast<uint32_t>(position) : order[position];
}

Status PlanBlocks(const PlanInput& input, const PlanLimits& limits, SegmentReservation* reservation,
                  transport::MovePlan* plan, uint64_t* descriptors_out) {
  SegmentWriter writer(limits, reservation, plan);
  BlockPlanner planner(input, limits, writer, *plan);
  for (const BlockGroup& group : input.groups) RETURN_IF_ERROR(planner.Add(group));
  *descriptors_out = planner.descriptors_out();
  const bool check = !input.of_whole_buffers && BuffersMayCollide(input);
  return check ? CheckOverlap(*plan, input) : Status{};
}

Status CheckRange(const PlanInput& input, size_t index, const PlanBuffer** local,
                  const PlanBuffer** remote) {
  const TransferRange& range = input.request->ranges[index];
  if (range.local_index >= input.local.size() || range.remote_index >= input.remote.size()) {
    return Fail(ErrorCode::kInvalidArgument, "the range names a buffer beyond the lists", {},
                RequestField("ranges", index));
  }
  if (range.length == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the range has length 0", {},
                RequestField("ranges", index, "length"));
  }
  *local = &input.local[range.local_index];
  *remote = &input.remote[range.remote_index];
  const std::pair<const PlanBuffer*, uint64_t> ends[] = {{*local, range.local_offset},
                                                         {*remote, range.remote_offset}};
  for (const auto& [buffer, offset] : ends) {
    if (Fits(offset, range.length, buffer->pieces->length())) continue;
    return Fail(ErrorCode::kOutOfRange,
                "[" + std::to_string(offset) + ", +" + std::to_string(range.length) +
                    ") lies outside of buffer '" + buffer->Name() + "' of " +
                    std::to_string(buffer->pieces->length()) + " bytes",
                {}, RequestField("ranges", index));
  }
  return {};
}

bool Continues(const ItemRun& run, const TransferRange& last, const TransferRange& next) {
  return last.local_index == next.local_index && last.remote_index == next.remote_index &&
         run.local_offset + run.item_bytes == next.local_offset &&
         run.remote_offset + run.item_bytes == next.remote_offset;
}

Status PlanRanges(const PlanInput& input, const PlanLimits& limits, SegmentReservation* reservation,
                  transport::MovePlan* plan, uint64_t* descriptors_out) {
  const std::vector<TransferRange>& ranges = input.request->ranges;
  if (ranges.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the transfer names neither blocks nor ranges", {},
                "/ranges");
  }
  RETURN_IF_ERROR(CheckDescriptorCount(ranges.size(), limits));
  for (size_t i = 0; i < ranges.size(); ++i) {
    const PlanBuffer* local = nullptr;
    const PlanBuffer* remote = nullptr;
    RETURN_IF_ERROR(CheckRange(input, i, &local, &remote));
    if (!EndOf(plan->bytes, ranges[i].length, &plan->bytes)) {
      return Fail(ErrorCode::kOutOfRange, "the ranges are longer than 2^64 bytes", {},
                  RequestField("ranges", i, "length"));
    }
  }
  plan->item_order = OrderOf(ranges.size(), [&](uint32_t a, uint32_t b) {
    return ranges[a].local_index != ranges[b].local_index
               ? ranges[a].local_index < ranges[b].local_index
               : ranges[a].local_offset < ranges[b].local_offset;
  });
  SegmentWriter writer(limits, reservation, plan);
  for (size_t i = 0; i < ranges.size();) {
    const TransferRange* last = &ranges[ItemAt(plan->item_order, i)];
    ItemRun run = {last->local_offset,
                   last->remote_offset,
                   last->length,
                   0,
                   0,
                   1,
                   static_cast<uint32_t>(i),
                   1};
    const PlanBuffer& local = input.local[last->local_index];
    const PlanBuffer& remote = input.remote[last->remote_index];
    for (++i; i < ranges.size(); ++i, ++run.items_in_one) {
      const TransferRange* next = &ranges[ItemAt(plan->item_order, i)];
      if (!Continues(run, *last, *next)) break;
      run.item_bytes += next->length;
      last = next;
    }
    RETURN_IF_ERROR(writer.Append(local, remote, run));
    ++*descriptors_out;
  }
  plan->descriptors_in = ranges.size();
  return input.of_whole_buffers ? Status{} : CheckOverlap(*plan, input);
}

}  // namespace

Result<BuiltPlan> BuildPlan(PlanInput input, const PlanLimits& limits,
                            SegmentReservation* reservation) {
  auto plan = std::make_shared<transport::MovePlan>();
  plan->operation = input.request->operation;
  plan->local = input.local_allocations;
  plan->remote = input.remote_allocations;
  plan->local_nic_memory = std::move(input.local_nic_memory);
  BuiltPlan built;
  if (input.request->by_blocks && input.groups.empty()) RETURN_IF_ERROR(AddOwnGroup(&input));
  RETURN_IF_ERROR(input.request->by_blocks
                      ? PlanBlocks(input, limits, reservation, plan.get(), &built.descriptors_out)
                      : PlanRanges(input, limits, reservation, plan.get(), &built.descriptors_out));
  built.plan = std::move(plan);
  return built;
}

}  // namespace gantry::engine
