#include "sidecar/engine/block_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/byte_range.h"

namespace gantry::engine {
namespace {

using transport::BlockPair;
using transport::BlockRun;
using Ids = std::span<const uint64_t>;

uint64_t RoundedUp(uint64_t count, uint32_t parts) { return (count + parts - 1) / parts; }

uint64_t UnitAt(Ids ids, uint32_t parts, uint32_t item) {
  return parts == 1 ? ids[item] : ids[item / parts] * parts + item % parts;
}

Status CheckCounts(const BlockGroup& group) {
  const uint64_t items = ItemsOf(group);
  if (items == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the transfer names no blocks", {},
                group.field + "/local_blocks");
  }
  if (group.local_blocks.size() == RoundedUp(items, group.shape->local_parts) &&
      group.remote_blocks.size() == RoundedUp(items, group.shape->remote_parts)) {
    return {};
  }
  const bool plain = group.shape->local_parts == 1 && group.shape->remote_parts == 1;
  return Fail(ErrorCode::kInvalidArgument,
              std::to_string(group.local_blocks.size()) + " local and " +
                  std::to_string(group.remote_blocks.size()) + " remote blocks",
              plain ? "the lists pair up: give them the same length"
                    : "the lists pair up by the block_ratio of the view; only the last block of "
                      "the shorter list may be covered in part",
              group.field + "/remote_blocks");
}

// Returns how many blocks all of the buffers have.
Result<uint64_t> CheckBlockIds(const BlockGroup& group, bool local, const PlanInput& input) {
  const Ids ids = local ? group.local_blocks : group.remote_blocks;
  const auto buffers =
      std::span(local ? input.local : input.remote).subspan(group.first_pair, group.pairs);
  const auto smallest = std::min_element(
      buffers.begin(), buffers.end(),
      [](const PlanBuffer& a, const PlanBuffer& b) { return a.layout->blocks < b.layout->blocks; });
  const uint64_t blocks = smallest->layout->blocks;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= blocks) {
      return Fail(ErrorCode::kOutOfRange,
                  "block " + std::to_string(ids[i]) + " does not exist: buffer '" + smallest->name +
                      "' has blocks 0 to " + std::to_string(blocks - 1),
                  {}, group.field + RequestField(local ? "local_blocks" : "remote_blocks", i));
    }
  }
  return blocks;
}

// Positions of `ids`, all below `blocks`, by rising id; of equal ids the first comes first. Long
// lists over not too many blocks are placed by their id, which costs a tenth of sorting.
std::vector<uint32_t> OrderOfBlocks(Ids ids, uint64_t blocks) {
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

Status CheckDuplicates(Ids ids, const std::vector<uint32_t>& order, const std::string& list) {
  for (size_t i = 1; i < order.size(); ++i) {
    const uint64_t block = ids[order[i]];
    if (block != ids[order[i - 1]]) continue;
    const auto last = std::find(ids.rbegin(), ids.rend(), block);
    return Fail(ErrorCode::kOverlap, "block " + std::to_string(block) + " is the destination twice",
                "name each destination block once",
                list + "/" + std::to_string(ids.rend() - last - 1));
  }
  return {};
}

// For each block of several parts the items of its parts, which the last block need not have all.
std::vector<uint32_t> OrderOfParts(const std::vector<uint32_t>& blocks, uint32_t parts,
                                   size_t items) {
  if (parts == 1) return blocks;
  std::vector<uint32_t> order;
  order.reserve(items);
  for (const uint32_t block : blocks) {
    for (uint32_t part = 0; part < parts; ++part) {
      const uint64_t item = uint64_t{block} * parts + part;
      if (item < items) order.push_back(static_cast<uint32_t>(item));
    }
  }
  return order;
}

Error OfPair(Error error, const PlanBuffer& local, const PlanBuffer& remote, std::string field) {
  return std::move(error)
      .WithContext("blocks of '" + local.name + "' and '" + remote.name + "'")
      .WithField(std::move(field));
}

bool InOnePiece(const PlanBuffer& buffer) { return buffer.pieces->pieces().size() == 1; }

}  // namespace

size_t ItemsOf(const BlockGroup& group) {
  return std::max(group.local_blocks.size(), group.remote_blocks.size());
}

std::string DestinationField(const PlanInput& input, uint32_t item) {
  if (!input.request->by_blocks) return RequestField("ranges", item);
  const bool read = input.request->operation == wire::Operation::kRead;
  for (const BlockGroup& group : input.groups) {
    if (item >= ItemsOf(group)) {
      item -= static_cast<uint32_t>(ItemsOf(group));
      continue;
    }
    const uint32_t parts = read ? group.shape->local_parts : group.shape->remote_parts;
    return group.field + RequestField(read ? "local_blocks" : "remote_blocks", item / parts);
  }
  return {};
}

Status BlockPlanner::MakePairs(const BlockGroup& group) {
  pairs_.clear();
  pairs_.reserve(group.pairs * group.shape->slices.size());
  for (size_t k = group.first_pair; k < group.first_pair + group.pairs; ++k) {
    const PlanBuffer& local = input_.local[k];
    const PlanBuffer& remote = input_.remote[k];
    if (!local.layout || !remote.layout) {
      return Fail(ErrorCode::kInvalidArgument,
                  "buffer '" + (local.layout ? remote : local).name + "' has no block layout",
                  "register it with `layout`, or name ranges instead of blocks",
                  RequestField(local.layout ? "remote" : "local", k));
    }
    for (const wire::BlockSlice& slice : group.shape->slices) {
      auto unit = UnitOf(*group.shape, slice, *local.layout, *remote.layout);
      if (!unit) {
        return Fail(OfPair(std::move(unit).error(), local, remote, RequestField("remote", k)));
      }
      pairs_.push_back({&local, &remote, *unit});
    }
  }
  return {};
}

Result<std::vector<uint32_t>> BlockPlanner::OrderItems(const BlockGroup& group) const {
  const bool read = input_.request->operation == wire::Operation::kRead;
  ASSIGN_OR_RETURN(const uint64_t local_count, CheckBlockIds(group, true, input_));
  ASSIGN_OR_RETURN(const uint64_t remote_count, CheckBlockIds(group, false, input_));
  // By local id, so that neighbours merge and this side's memory is walked in order.
  const std::vector<uint32_t> order = OrderOfBlocks(group.local_blocks, local_count);
  RETURN_IF_ERROR(read ? CheckDuplicates(group.local_blocks, order, group.field + "/local_blocks")
                       : CheckDuplicates(group.remote_blocks,
                                         OrderOfBlocks(group.remote_blocks, remote_count),
                                         group.field + "/remote_blocks"));
  if (!SlicesAreApart(*group.shape, read)) {
    return Fail(ErrorCode::kOverlap, "slices of the view share bytes of the destination block",
                "make views whose slices do not overlap on the side that is written", "/view");
  }
  return OrderOfParts(order, group.shape->local_parts, ItemsOf(group));
}

bool BlockPlanner::BlocksJoin(bool local, uint32_t parts) const {
  if (parts == 1) return true;
  return std::all_of(pairs_.begin(), pairs_.end(), [&](const SlicedPair& pair) {
    return (local ? pair.local : pair.remote)->layout->block_stride == parts * pair.unit.bytes;
  });
}

std::vector<BlockRun> BlockPlanner::RunsOf(const BlockGroup& group,
                                           const std::vector<uint32_t>& order, uint64_t units_max,
                                           uint64_t* merged) const {
  const uint32_t local_parts = group.shape->local_parts;
  const uint32_t remote_parts = group.shape->remote_parts;
  // Units that begin a block which the one before does not run into; 1: there are none.
  const uint32_t local_break = BlocksJoin(true, local_parts) ? 1 : local_parts;
  const uint32_t remote_break = BlocksJoin(false, remote_parts) ? 1 : remote_parts;
  const auto first_item = static_cast<uint32_t>(plan_.item_order.size());
  std::vector<BlockRun> runs;
  runs.reserve(order.size());
  *merged = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto local = static_cast<uint32_t>(UnitAt(group.local_blocks, local_parts, order[i]));
    const auto remote = static_cast<uint32_t>(UnitAt(group.remote_blocks, remote_parts, order[i]));
    const bool follows = !runs.empty() && runs.back().local_unit + runs.back().count == local &&
                         runs.back().remote_unit + runs.back().count == remote &&
                         (local_break == 1 || local % local_break != 0) &&
                         (remote_break == 1 || remote % remote_break != 0);
    *merged += follows ? 0 : 1;
    if (follows && runs.back().count < units_max) {
      ++runs.back().count;
    } else {
      runs.push_back({local, remote, 1, first_item + static_cast<uint32_t>(i)});
    }
  }
  return runs;
}

uint64_t BlockPlanner::UnitsPerChunk() const {
  uint64_t units = UINT32_MAX;
  for (const SlicedPair& pair : pairs_) {
    if (!InOnePiece(*pair.local) || !InOnePiece(*pair.remote)) return 0;
    units = std::min(units, limits_.chunk_bytes_max / pair.unit.bytes);
  }
  return units;
}

Status BlockPlanner::WriteRuns(const BlockShape& shape, std::vector<BlockRun> runs) {
  std::vector<BlockPair> pairs;
  pairs.reserve(pairs_.size());
  for (const SlicedPair& pair : pairs_) {
    const memory::Extent here = pair.local->pieces->Locate(pair.unit.local_offset, pair.unit.bytes);
    const memory::Extent there =
        pair.remote->pieces->Locate(pair.unit.remote_offset, pair.unit.bytes);
    pairs.push_back({pair.local->allocations[here.allocation],
                     pair.remote->allocations[there.allocation], here.offset, there.offset,
                     pair.unit.bytes, pair.local->layout->block_stride,
                     pair.remote->layout->block_stride, shape.local_parts, shape.remote_parts});
  }
  return writer_.AddRuns(std::move(pairs), std::move(runs));
}

Status BlockPlanner::CutRuns(const BlockShape& shape, const std::vector<BlockRun>& runs) {
  for (const SlicedPair& pair : pairs_) {
    BlockPair flat;  // offsets in the buffers instead of their allocations
    flat.local_base = pair.unit.local_offset;
    flat.remote_base = pair.unit.remote_offset;
    flat.unit_bytes = pair.unit.bytes;
    flat.local_stride = pair.local->layout->block_stride;
    flat.remote_stride = pair.remote->layout->block_stride;
    flat.local_parts = shape.local_parts;
    flat.remote_parts = shape.remote_parts;
    for (const BlockRun& run : runs) {
      RETURN_IF_ERROR(writer_.Append(
          *pair.local, *pair.remote,
          {flat.local_offset(run.local_unit), flat.remote_offset(run.remote_unit), flat.unit_bytes,
           flat.local_step(), flat.remote_step(), run.count, run.first_item, 1}));
    }
  }
  return {};
}

Status BlockPlanner::Add(const BlockGroup& group) {
  RETURN_IF_ERROR(CheckCounts(group));
  RETURN_IF_ERROR(MakePairs(group));
  const uint64_t items = ItemsOf(group);
  uint64_t descriptors = 0;
  if (!Product(items, pairs_.size(), &descriptors)) descriptors = UINT64_MAX;
  RETURN_IF_ERROR(CheckDescriptorCount(
      descriptors > limits_.descriptors_max ? descriptors : plan_.descriptors_in + descriptors,
      limits_));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> order, OrderItems(group));
  const uint64_t units_per_chunk = UnitsPerChunk();
  uint64_t merged = 0;
  std::vector<BlockRun> runs =
      RunsOf(group, order, units_per_chunk == 0 ? UINT32_MAX : units_per_chunk, &merged);
  RETURN_IF_ERROR(units_per_chunk == 0 ? CutRuns(*group.shape, runs)
                                       : WriteRuns(*group.shape, std::move(runs)));
  const auto first_item = static_cast<uint32_t>(plan_.item_order.size());
  for (const uint32_t item : order) plan_.item_order.push_back(first_item + item);
  for (const SlicedPair& pair : pairs_) plan_.bytes += pair.unit.bytes * items;
  plan_.descriptors_in += descriptors;
  descriptors_out_ += merged * pairs_.size();
  return {};
}

}  // namespace gantry::engine
