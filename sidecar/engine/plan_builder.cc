#include "sidecar/engine/plan_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/engine/overlap_check.h"
#include "sidecar/engine/segment_writer.h"

namespace gantry::engine {
namespace {

using transport::BlockRun;
using wire::TransferRange;
using wire::TransferRequest;

std::string Field(std::string_view list, size_t index, std::string_view member = {}) {
  std::string field = "/" + std::string(list) + "/" + std::to_string(index);
  if (!member.empty()) field += "/" + std::string(member);
  return field;
}

Status CheckDescriptorCount(uint64_t count, const PlanLimits& limits) {
  if (count <= limits.descriptors_max) return {};
  return Fail(ErrorCode::kResourceExhausted,
              "the transfer has " + std::to_string(count) + " descriptors; the limit is " +
                  std::to_string(limits.descriptors_max),
              "split it into several transfers");
}

Status CheckPairing(const PlanInput& input) {
  if (input.local.size() != input.remote.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                "block ids pair local[k] with remote[k], but there are " +
                    std::to_string(input.local.size()) + " local and " +
                    std::to_string(input.remote.size()) + " remote buffers",
                {}, "/remote");
  }
  for (size_t k = 0; k < input.local.size(); ++k) {
    const PlanBuffer& local = input.local[k];
    const PlanBuffer& remote = input.remote[k];
    if (!local.layout || !remote.layout) {
      return Fail(ErrorCode::kInvalidArgument,
                  "buffer '" + (local.layout ? remote : local).name + "' has no block layout",
                  "register it with `layout`, or name ranges instead of blocks",
                  Field(local.layout ? "remote" : "local", k));
    }
    if (local.layout->block_bytes != remote.layout->block_bytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  "blocks of '" + local.name + "' have " +
                      std::to_string(local.layout->block_bytes) + " bytes, those of '" +
                      remote.name + "' " + std::to_string(remote.layout->block_bytes),
                  "pair buffers of the same block size", Field("remote", k));
    }
  }
  return {};
}

// Returns how many blocks all of the buffers have.
Result<uint64_t> CheckBlockIds(const std::vector<uint64_t>& ids,
                               const std::vector<PlanBuffer>& buffers, std::string_view list) {
  const auto smallest = std::min_element(
      buffers.begin(), buffers.end(),
      [](const PlanBuffer& a, const PlanBuffer& b) { return a.layout->blocks < b.layout->blocks; });
  const uint64_t blocks = smallest->layout->blocks;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= blocks) {
      return Fail(ErrorCode::kOutOfRange,
                  "block " + std::to_string(ids[i]) + " does not exist: buffer '" + smallest->name +
                      "' has blocks 0 to " + std::to_string(blocks - 1),
                  {}, Field(list, i));
    }
  }
  return blocks;
}

tl::unexpected<Error> TwiceDestination(const std::vector<uint64_t>& ids, uint64_t block,
                                       std::string_view list) {
  const auto last = std::find(ids.rbegin(), ids.rend(), block);
  return Fail(ErrorCode::kOverlap, "block " + std::to_string(block) + " is the destination twice",
              "name each destination block once",
              Field(list, static_cast<size_t>(ids.rend() - last) - 1));
}

// Positions of `ids`, all below `blocks`, by rising id; of equal ids the first comes first. Long
// lists over not too many blocks are placed by their id, which costs a tenth of sorting.
std::vector<uint32_t> OrderOfBlocks(const std::vector<uint64_t>& ids, uint64_t blocks) {
  std::vector<uint32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0u);
  if (std::is_sorted(ids.begin(), ids.end())) return order;
  constexpr uint64_t kBlocksPerId = 8;
  if (ids.size() < 256 || blocks / kBlocksPerId > ids.size()) {
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
    return order;
  }
  std::vector<uint32_t> next(blocks + 1, 0);
  for (const uint64_t id : ids) ++next[id + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (uint32_t i = 0; i < ids.size(); ++i) order[next[ids[i]]++] = i;
  return order;
}

Status CheckDuplicates(const std::vector<uint64_t>& ids, const std::vector<uint32_t>& order,
                       std::string_view list) {
  for (size_t i = 1; i < order.size(); ++i) {
    if (ids[order[i]] == ids[order[i - 1]]) return TwiceDestination(ids, ids[order[i]], list);
  }
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

// Consecutive block ids on both sides, at most `blocks_max` of them in one run; the same for every
// pair of buffers. Counts in *merged how many there would be without that limit.
std::vector<BlockRun> RunsOf(const TransferRequest& request, const std::vector<uint32_t>& order,
                             uint64_t blocks_max, uint64_t* merged) {
  std::vector<BlockRun> runs;
  runs.reserve(request.local_blocks.size());
  *merged = 0;
  for (size_t i = 0; i < request.local_blocks.size(); ++i) {
    const uint32_t item = ItemAt(order, i);
    const auto local = static_cast<uint32_t>(request.local_blocks[item]);
    const auto remote = static_cast<uint32_t>(request.remote_blocks[item]);
    const bool follows = !runs.empty() && runs.back().local_block + runs.back().count == local &&
                         runs.back().remote_block + runs.back().count == remote;
    *merged += follows ? 0 : 1;
    if (follows && runs.back().count < blocks_max) {
      ++runs.back().count;
    } else {
      runs.push_back({local, remote, 1, static_cast<uint32_t>(i)});
    }
  }
  return runs;
}

bool InOnePiece(const PlanBuffer& buffer) { return buffer.pieces->pieces().size() == 1; }

// How many blocks of every pair fit into one chunk; 0 when the pairs must be cut one by one:
// at the seams of pieces, or because a single block is longer than a chunk.
uint64_t BlocksPerChunk(const PlanInput& input, const PlanLimits& limits) {
  uint64_t blocks = UINT32_MAX;
  for (size_t k = 0; k < input.local.size(); ++k) {
    if (!InOnePiece(input.local[k]) || !InOnePiece(input.remote[k])) return 0;
    blocks = std::min(blocks, limits.chunk_bytes_max / input.local[k].layout->block_bytes);
  }
  return blocks;
}

transport::BlockPair PairOf(const PlanBuffer& local, const PlanBuffer& remote) {
  const memory::Extent here = local.pieces->Locate(0, local.layout->block_bytes);
  const memory::Extent there = remote.pieces->Locate(0, remote.layout->block_bytes);
  return {local.allocations[here.allocation],
          remote.allocations[there.allocation],
          here.offset,
          there.offset,
          local.layout->block_bytes,
          local.layout->block_stride,
          remote.layout->block_stride};
}

// Every run is one segment in each pair.
Status WriteRuns(const PlanInput& input, const PlanLimits& limits, std::vector<BlockRun> runs,
                 SegmentReservation* reservation, transport::MovePlan* plan) {
  std::vector<transport::BlockPair> pairs;
  for (size_t k = 0; k < input.local.size(); ++k) {
    pairs.push_back(PairOf(input.local[k], input.remote[k]));
  }
  SegmentWriter writer(limits, reservation, plan);
  return writer.SetRuns(std::move(pairs), std::move(runs));
}

Status CutRuns(const PlanInput& input, const PlanLimits& limits, const std::vector<BlockRun>& runs,
               SegmentReservation* reservation, transport::MovePlan* plan) {
  plan->segments.reserve(std::min(runs.size() * input.local.size(), limits.segments_max));
  SegmentWriter writer(limits, reservation, plan);
  for (size_t k = 0; k < input.local.size(); ++k) {
    const wire::BlockLayout& local = *input.local[k].layout;
    const wire::BlockLayout& remote = *input.remote[k].layout;
    for (const BlockRun& run : runs) {
      RETURN_IF_ERROR(
          writer.Append(input.local[k], input.remote[k],
                        {run.local_block * local.block_stride,
                         run.remote_block * remote.block_stride, local.block_bytes,
                         local.block_stride, remote.block_stride, run.count, run.first_item, 1}));
    }
  }
  return {};
}

Status PlanBlocks(const PlanInput& input, const PlanLimits& limits, SegmentReservation* reservation,
                  transport::MovePlan* plan, uint64_t* descriptors_out) {
  const TransferRequest& request = *input.request;
  if (request.local_blocks.size() != request.remote_blocks.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(request.local_blocks.size()) + " local and " +
                    std::to_string(request.remote_blocks.size()) + " remote blocks",
                "the lists pair up: give them the same length", "/remote_blocks");
  }
  if (request.local_blocks.empty() || input.local.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the transfer names no blocks or no buffers", {},
                input.local.empty() ? "/local" : "/local_blocks");
  }
  RETURN_IF_ERROR(CheckPairing(input));
  RETURN_IF_ERROR(CheckDescriptorCount(request.local_blocks.size() * input.local.size(), limits));
  ASSIGN_OR_RETURN(const uint64_t local_count,
                   CheckBlockIds(request.local_blocks, input.local, "local_blocks"));
  ASSIGN_OR_RETURN(const uint64_t remote_count,
                   CheckBlockIds(request.remote_blocks, input.remote, "remote_blocks"));
  // By local id, so that neighbours merge and this side's memory is walked in order.
  plan->item_order = OrderOfBlocks(request.local_blocks, local_count);
  RETURN_IF_ERROR(request.operation == wire::Operation::kRead
                      ? CheckDuplicates(request.local_blocks, plan->item_order, "local_blocks")
                      : CheckDuplicates(request.remote_blocks,
                                        OrderOfBlocks(request.remote_blocks, remote_count),
                                        "remote_blocks"));
  const uint64_t blocks_per_chunk = BlocksPerChunk(input, limits);
  uint64_t merged = 0;
  std::vector<BlockRun> runs = RunsOf(
      request, plan->item_order, blocks_per_chunk == 0 ? UINT32_MAX : blocks_per_chunk, &merged);
  RETURN_IF_ERROR(blocks_per_chunk == 0
                      ? CutRuns(input, limits, runs, reservation, plan)
                      : WriteRuns(input, limits, std::move(runs), reservation, plan));
  for (const PlanBuffer& local : input.local) {
    plan->bytes += local.layout->block_bytes * request.local_blocks.size();
  }
  plan->descriptors_in = request.local_blocks.size() * input.local.size();
  *descriptors_out = merged * input.local.size();
  return BuffersMayCollide(input) ? CheckOverlap(*plan, true) : Status{};
}

Status CheckRange(const PlanInput& input, size_t index, const PlanBuffer** local,
                  const PlanBuffer** remote) {
  const TransferRange& range = input.request->ranges[index];
  if (range.local_index >= input.local.size() || range.remote_index >= input.remote.size()) {
    return Fail(ErrorCode::kInvalidArgument, "the range names a buffer beyond the lists", {},
                Field("ranges", index));
  }
  if (range.length == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the range has length 0", {},
                Field("ranges", index, "length"));
  }
  *local = &input.local[range.local_index];
  *remote = &input.remote[range.remote_index];
  const std::pair<const PlanBuffer*, uint64_t> ends[] = {{*local, range.local_offset},
                                                         {*remote, range.remote_offset}};
  for (const auto& [buffer, offset] : ends) {
    if (Fits(offset, range.length, buffer->pieces->length())) continue;
    return Fail(ErrorCode::kOutOfRange,
                "[" + std::to_string(offset) + ", +" + std::to_string(range.length) +
                    ") lies outside of buffer '" + buffer->name + "' of " +
                    std::to_string(buffer->pieces->length()) + " bytes",
                {}, Field("ranges", index));
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
                  Field("ranges", i, "length"));
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
  return CheckOverlap(*plan, false);
}

}  // namespace

Result<BuiltPlan> BuildPlan(PlanInput input, const PlanLimits& limits,
                            SegmentReservation* reservation) {
  auto plan = std::make_shared<transport::MovePlan>();
  plan->operation = input.request->operation;
  plan->local = input.local_allocations;
  plan->remote = input.remote_allocations;
  BuiltPlan built;
  RETURN_IF_ERROR(input.request->by_blocks
                      ? PlanBlocks(input, limits, reservation, plan.get(), &built.descriptors_out)
                      : PlanRanges(input, limits, reservation, plan.get(), &built.descriptors_out));
  built.plan = std::move(plan);
  return built;
}

}  // namespace gantry::engine
