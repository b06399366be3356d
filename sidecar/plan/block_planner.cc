#include "sidecar/plan/block_planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/byte_range.h"
#include "sidecar/plan/block_order.h"
#include "sidecar/plan/row_grouping.h"

namespace gantry::engine {
namespace {

using transport::BlockPair;
using transport::BlockRun;

uint64_t RoundedUp(uint64_t count, uint32_t parts) { return (count + parts - 1) / parts; }

Status CheckCounts(const BlockGroup& group) {
  const uint64_t items = ItemsOf(group);
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

// A list of ids that are all in range.
struct CheckedIds {
  std::vector<uint32_t> ids;
  uint64_t blocks = 0;  // that all of the buffers have
};

Result<CheckedIds> CheckBlockIds(const BlockGroup& group, bool local, const PlanInput& input) {
  const std::span<const uint64_t> ids = local ? group.local_blocks : group.remote_blocks;
  const auto buffers =
      std::span(local ? input.local : input.remote).subspan(group.first_pair, group.pairs);
  const auto smallest = std::min_element(
      buffers.begin(), buffers.end(),
      [](const PlanBuffer& a, const PlanBuffer& b) { return a.layout->blocks < b.layout->blocks; });
  const uint64_t blocks = smallest->layout->blocks;
  CheckedIds checked = {NarrowIds(ids, blocks), blocks};
  if (checked.ids.size() == ids.size()) return checked;
  const auto beyond =
      std::find_if(ids.begin(), ids.end(), [&](uint64_t id) { return id >= blocks; });
  return Fail(ErrorCode::kOutOfRange,
              "block " + std::to_string(*beyond) + " does not exist: buffer '" + smallest->Name() +
                  "' has blocks 0 to " + std::to_string(blocks - 1),
              {},
              group.field + RequestField(local ? "local_blocks" : "remote_blocks",
                                         static_cast<size_t>(beyond - ids.begin())));
}

// The lowest id that repeats, and where it is named last.
tl::unexpected<Error> NamedTwice(std::span<const uint64_t> ids, const std::string& list) {
  std::vector<uint64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const uint64_t block = *std::adjacent_find(sorted.begin(), sorted.end());
  const auto last = std::find(ids.rbegin(), ids.rend(), block);
  return Fail(ErrorCode::kOverlap, "block " + std::to_string(block) + " is the destination twice",
              "name each destination block once",
              list + "/" + std::to_string(ids.rend() - last - 1));
}

// For each block of several parts the items of its parts, which the last block need not have all.
// `blocks` may be empty: they are in order.
std::vector<uint32_t> OrderOfParts(const std::vector<uint32_t>& blocks, uint32_t parts,
                                   size_t items) {
  if (parts == 1 || blocks.empty()) return blocks;
  std::vector<uint32_t> order;
  order.reserve(items);
  for (const uint32_t block : blocks) {
    const uint64_t first = uint64_t{block} * parts;
    for (uint64_t item = first; item < std::min<uint64_t>(first + parts, items); ++item) {
      order.push_back(static_cast<uint32_t>(item));
    }
  }
  return order;
}

// The unit of each item, in the request's order.
std::vector<uint32_t> UnitsOf(std::vector<uint32_t> blocks, uint32_t parts, size_t items) {
  if (parts == 1) return blocks;
  std::vector<uint32_t> units;
  units.reserve(blocks.size() * parts);
  for (const uint32_t block : blocks) {
    for (uint32_t part = 0; part < parts; ++part) units.push_back(block * parts + part);
  }
  units.resize(items);
  return units;
}

// An empty order is the one that they have.
std::vector<uint32_t> InOrder(std::vector<uint32_t> units, const std::vector<uint32_t>& order) {
  if (order.empty()) return units;
  std::vector<uint32_t> ordered(order.size());
  for (size_t i = 0; i < order.size(); ++i) ordered[i] = units[order[i]];
  return ordered;
}

void AppendOrder(const std::vector<uint32_t>& order, size_t items, std::vector<uint32_t>* all) {
  const auto first = static_cast<uint32_t>(all->size());
  all->resize(first + items);
  uint32_t* const appended = all->data() + first;
  if (order.empty()) std::iota(appended, appended + items, first);
  for (size_t i = 0; i < order.size(); ++i) appended[i] = first + order[i];
}

// Runs of units that follow each other on both sides, of any length; `begins` says of a pair of
// units that it follows none.
template <typename Begins>
std::vector<BlockRun> MergeUnits(std::span<const uint32_t> local, std::span<const uint32_t> remote,
                                 uint32_t first_item, const Begins& begins) {
  // Both units as one number: that it grows by one in each half is one comparison. No unit is the
  // largest number of 32 bits.
  constexpr uint64_t kOneInEach = uint64_t{1} << 32 | 1;
  const auto both = [&](size_t i) { return uint64_t{remote[i]} << 32 | local[i]; };
  const auto follows = [&](size_t i) {
    return both(i) == both(i - 1) + kOneInEach && !begins(local[i], remote[i]);
  };
  std::vector<uint32_t> starts(local.size() + 1);
  size_t count = 1;
  for (size_t i = 1; i < local.size(); ++i) {
    starts[count] = static_cast<uint32_t>(i);  // stays when a run begins here
    count += follows(i) ? 0 : 1;
  }
  starts[count] = static_cast<uint32_t>(local.size());
  std::vector<BlockRun> runs(count);
  if (count == local.size()) {  // of random ids mostly
    for (uint32_t i = 0; i < count; ++i) runs[i] = {local[i], remote[i], 1, first_item + i};
    return runs;
  }
  for (size_t k = 0; k < count; ++k) {
    const uint32_t start = starts[k];
    runs[k] = {local[start], remote[start], starts[k + 1] - start, first_item + start};
  }
  return runs;
}

// The runs in parts of at most `units_max` units.
std::vector<BlockRun> CutLongRuns(std::vector<BlockRun> runs, uint64_t units_max) {
  const auto is_long = [&](const BlockRun& run) { return run.count > units_max; };
  if (std::none_of(runs.begin(), runs.end(), is_long)) return runs;
  uint64_t parts = 0;
  for (const BlockRun& run : runs) parts += (run.count + units_max - 1) / units_max;
  std::vector<BlockRun> cut;
  cut.reserve(parts);
  for (const BlockRun& run : runs) {
    for (uint64_t done = 0; done < run.count; done += units_max) {
      const auto offset = static_cast<uint32_t>(done);
      const auto count = static_cast<uint32_t>(std::min(run.count - done, units_max));
      cut.push_back(
          {run.local_unit + offset, run.remote_unit + offset, count, run.first_item + offset});
    }
  }
  return cut;
}

Error OfPair(Error error, const PlanBuffer& local, const PlanBuffer& remote, std::string field) {
  return std::move(error)
      .WithContext("blocks of '" + local.Name() + "' and '" + remote.Name() + "'")
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
                  "buffer '" + (local.layout ? remote : local).Name() + "' has no block layout",
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

Result<BlockPlanner::ItemUnits> BlockPlanner::OrderItems(const BlockGroup& group) {
  const bool read = input_.request->operation == wire::Operation::kRead;
  ASSIGN_OR_RETURN(CheckedIds local, CheckBlockIds(group, true, input_));
  ASSIGN_OR_RETURN(CheckedIds remote, CheckBlockIds(group, false, input_));
  if (!read && !AreDistinct(remote.ids, remote.blocks)) {
    return NamedTwice(group.remote_blocks, group.field + "/remote_blocks");
  }
  const uint32_t local_parts = group.shape->local_parts;
  const size_t items = ItemsOf(group);
  // By local id, so that neighbours merge and this side's memory is walked in order.
  BlockOrder blocks =
      OrderBlocks(local_parts == 1 ? std::move(local.ids) : local.ids, local.blocks);
  if (read && !blocks.distinct) {
    return NamedTwice(group.local_blocks, group.field + "/local_blocks");
  }
  if (!SlicesAreApart(*group.shape, read)) {
    return Fail(ErrorCode::kOverlap, "slices of the view share bytes of the destination block",
                "make views whose slices do not overlap on the side that is written", "/view");
  }
  const std::vector<uint32_t> order = OrderOfParts(blocks.positions, local_parts, items);
  ItemUnits units;
  units.first_item = static_cast<uint32_t>(plan_.item_order.size());
  units.local = local_parts == 1
                    ? std::move(blocks.ids)
                    : InOrder(UnitsOf(std::move(local.ids), local_parts, items), order);
  units.remote = InOrder(UnitsOf(std::move(remote.ids), group.shape->remote_parts, items), order);
  AppendOrder(order, items, &plan_.item_order);
  return units;
}

bool BlockPlanner::BlocksJoin(bool local, uint32_t parts) const {
  if (parts == 1) return true;
  return std::all_of(pairs_.begin(), pairs_.end(), [&](const SlicedPair& pair) {
    return (local ? pair.local : pair.remote)->layout->block_stride == parts * pair.unit.bytes;
  });
}

std::vector<BlockRun> BlockPlanner::RunsOf(const BlockShape& shape, const ItemUnits& units) const {
  // Units that begin a block which the one before does not run into; 1: there are none.
  const uint32_t local_break = BlocksJoin(true, shape.local_parts) ? 1 : shape.local_parts;
  const uint32_t remote_break = BlocksJoin(false, shape.remote_parts) ? 1 : shape.remote_parts;
  if (local_break == 1 && remote_break == 1) {
    return MergeUnits(units.local, units.remote, units.first_item,
                      [](uint32_t, uint32_t) { return false; });
  }
  return MergeUnits(units.local, units.remote, units.first_item,
                    [&](uint32_t local, uint32_t remote) {
                      return (local_break > 1 && local % local_break == 0) ||
                             (remote_break > 1 && remote % remote_break == 0);
                    });
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
  // Rows are the same slice of several buffers.
  const size_t slices = limits_.rows.any() ? shape.slices.size() : 1;
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const size_t buffers = pairs_.size() / slices;
    const SlicedPair& pair = pairs_[i % buffers * slices + i / buffers];
    const memory::Extent here = pair.local->pieces->Locate(pair.unit.local_offset, pair.unit.bytes);
    const memory::Extent there =
        pair.remote->pieces->Locate(pair.unit.remote_offset, pair.unit.bytes);
    pairs.push_back({pair.local->allocations[here.allocation],
                     pair.remote->allocations[there.allocation], here.offset, there.offset,
                     pair.unit.bytes, pair.local->layout->block_stride,
                     pair.remote->layout->block_stride, shape.local_parts, shape.remote_parts});
  }
  if (!limits_.rows.any()) return writer_.AddRuns(std::move(pairs), std::move(runs));
  for (auto& set : GroupRows({std::move(pairs), std::move(runs)}, slices, limits_.rows)) {
    RETURN_IF_ERROR(writer_.AddRuns(std::move(set.pairs), std::move(set.runs)));
  }
  return {};
}

Status BlockPlanner::CutRuns(const BlockShape& shape, const std::vector<BlockRun>& runs) {
  RETURN_IF_ERROR(writer_.Expect(runs.size() * pairs_.size()));
  for (const SlicedPair& pair : pairs_) {
    BlockPair flat;  // offsets in the buffers instead of their allocations
    flat.local_base = pair.unit.local_offset;
    flat.remote_base = pair.unit.remote_offset;
    flat.unit_bytes = pair.unit.bytes;
    flat.local_stride = pair.local->layout->block_stride;
    flat.remote_stride = pair.remote->layout->block_stride;
    flat.local_parts = shape.local_parts;
    flat.remote_parts = shape.remote_parts;
    RETURN_IF_ERROR(writer_.AppendUnits(*pair.local, *pair.remote, flat, runs));
  }
  return {};
}

Status BlockPlanner::Add(const BlockGroup& group) {
  RETURN_IF_ERROR(CheckCounts(group));
  RETURN_IF_ERROR(MakePairs(group));
  const uint64_t items = ItemsOf(group);
  if (items == 0) return {};
  uint64_t descriptors = 0;
  if (!Product(items, pairs_.size(), &descriptors)) descriptors = UINT64_MAX;
  RETURN_IF_ERROR(CheckDescriptorCount(
      descriptors > limits_.descriptors_max ? descriptors : plan_.descriptors_in + descriptors,
      limits_));
  ASSIGN_OR_RETURN(const ItemUnits units, OrderItems(group));
  std::vector<BlockRun> runs = RunsOf(*group.shape, units);
  descriptors_out_ += runs.size() * pairs_.size();
  const uint64_t units_per_chunk = UnitsPerChunk();
  RETURN_IF_ERROR(units_per_chunk == 0
                      ? CutRuns(*group.shape, runs)
                      : WriteRuns(*group.shape, CutLongRuns(std::move(runs), units_per_chunk)));
  for (const SlicedPair& pair : pairs_) plan_.bytes += pair.unit.bytes * items;
  plan_.descriptors_in += descriptors;
  return {};
}

}  // namespace gantry::engine
