#include "sidecar/plan/segment_writer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gantry::engine {
namespace {

void Place(const PlanBuffer& local, const memory::Extent& here, const PlanBuffer& remote,
           const memory::Extent& there, transport::MoveSegment* segment) {
  segment->local_allocation = local.allocations[here.allocation];
  segment->remote_allocation = remote.allocations[there.allocation];
  segment->local_offset = here.offset;
  segment->remote_offset = there.offset;
}

}  // namespace

SegmentWriter::SegmentWriter(const PlanLimits& limits, SegmentReservation* reservation,
                             transport::MovePlan* plan)
    : chunk_bytes_max_(std::max<uint64_t>(limits.chunk_bytes_max, 1)),
      segments_max_(limits.segments_max),
      reservation_(*reservation),
      plan_(*plan) {}

Status SegmentWriter::Reserve(uint64_t segments, uint64_t kept) {
  if (segments > segments_max_ - segments_) {
    return Fail(ErrorCode::kResourceExhausted,
                "the transfer has more than " + std::to_string(segments_max_) +
                    " chunks after cutting at pieces and at the chunk limit",
                "split it into several transfers");
  }
  kept_ += kept;
  if (!reservation_.Cover(kept_)) {
    return Fail(ErrorCode::kResourceExhausted,
                "too many chunks are queued or being planned by all transfers together",
                "wait for completions before submitting more");
  }
  segments_ += segments;
  return {};
}

Status SegmentWriter::Expect(uint64_t segments) {
  RETURN_IF_ERROR(Reserve(segments, segments));
  unused_ += segments;
  plan_.segments.ReserveMore(unused_);
  return {};
}

Status SegmentWriter::Add(const transport::MoveSegment& segment) {
  if (unused_ > 0) {
    --unused_;
  } else {
    RETURN_IF_ERROR(Reserve(1, 1));
  }
  plan_.segments.push_back(segment);
  return {};
}

Status SegmentWriter::AddRuns(std::vector<transport::BlockPair> pairs,
                              std::vector<transport::BlockRun> runs) {
  RETURN_IF_ERROR(Reserve(pairs.size() * runs.size(), pairs.size() + runs.size()));
  plan_.segments.AddRuns(std::move(pairs), std::move(runs));
  return {};
}

Status SegmentWriter::Append(const PlanBuffer& local, const PlanBuffer& remote,
                             const ItemRun& run) {
  const bool dense =
      run.count == 1 || (run.local_stride == run.item_bytes && run.remote_stride == run.item_bytes);
  const bool one_piece = local.pieces->pieces().size() == 1 && remote.pieces->pieces().size() == 1;
  if (dense) return AppendContiguous(local, remote, run);
  if (one_piece && run.item_bytes <= chunk_bytes_max_) return AppendStrided(local, remote, run);
  ItemRun item = run;
  item.count = 1;
  for (uint32_t i = 0; i < run.count; ++i) {
    item.local_offset = run.local_offset + i * run.local_stride;
    item.remote_offset = run.remote_offset + i * run.remote_stride;
    item.first_item = run.first_item + i;
    RETURN_IF_ERROR(AppendContiguous(local, remote, item));
  }
  return {};
}

Status SegmentWriter::AppendUnits(const PlanBuffer& local, const PlanBuffer& remote,
                                  const transport::BlockPair& flat,
                                  std::span<const transport::BlockRun> runs) {
  memory::PieceMap::Cursor here(*local.pieces);
  memory::PieceMap::Cursor there(*remote.pieces);
  const bool dense = flat.is_dense();
  for (const transport::BlockRun& run : runs) {
    transport::MoveSegment segment;
    segment.length = flat.unit_bytes * run.count;
    const uint64_t local_offset = flat.local_offset(run.local_unit);
    const uint64_t remote_offset = flat.remote_offset(run.remote_unit);
    if ((dense || run.count == 1) && segment.length <= chunk_bytes_max_) {
      const memory::Extent from = here.Locate(local_offset, segment.length);
      const memory::Extent to = there.Locate(remote_offset, segment.length);
      if (from.length == segment.length && to.length == segment.length) {
        Place(local, from, remote, to, &segment);
        segment.first_item = run.first_item;
        segment.items = run.count;
        RETURN_IF_ERROR(Add(segment));
        continue;
      }
    }
    RETURN_IF_ERROR(Append(local, remote,
                           {local_offset, remote_offset, flat.unit_bytes, flat.local_step(),
                            flat.remote_step(), run.count, run.first_item, 1}));
  }
  return {};
}

Status SegmentWriter::AppendContiguous(const PlanBuffer& local, const PlanBuffer& remote,
                                       const ItemRun& run) {
  const uint64_t total = run.item_bytes * run.count;
  for (uint64_t done = 0; done < total;) {
    const uint64_t want = std::min(total - done, chunk_bytes_max_);
    const memory::Extent here = local.pieces->Locate(run.local_offset + done, want);
    const memory::Extent there = remote.pieces->Locate(run.remote_offset + done, here.length);
    transport::MoveSegment segment;
    Place(local, here, remote, there, &segment);
    segment.length = there.length;
    if (run.items_in_one > 1) {
      segment.first_item = run.first_item;
      segment.items = run.items_in_one;
    } else {
      const uint64_t first = done / run.item_bytes;
      const uint64_t last = (done + there.length - 1) / run.item_bytes;
      segment.first_item = run.first_item + static_cast<uint32_t>(first);
      segment.items = static_cast<uint32_t>(last - first + 1);
    }
    RETURN_IF_ERROR(Add(segment));
    done += there.length;
  }
  return {};
}

Status SegmentWriter::AppendStrided(const PlanBuffer& local, const PlanBuffer& remote,
                                    const ItemRun& run) {
  const auto items_max =
      static_cast<uint32_t>(std::min<uint64_t>(chunk_bytes_max_ / run.item_bytes, UINT32_MAX));
  for (uint32_t done = 0; done < run.count;) {
    const uint32_t items = std::min(run.count - done, items_max);
    const memory::Extent here =
        local.pieces->Locate(run.local_offset + done * run.local_stride, run.item_bytes);
    const memory::Extent there =
        remote.pieces->Locate(run.remote_offset + done * run.remote_stride, run.item_bytes);
    transport::MoveSegment segment;
    Place(local, here, remote, there, &segment);
    segment.length = run.item_bytes;
    segment.local_stride = run.local_stride;
    segment.remote_stride = run.remote_stride;
    segment.count = items;
    segment.first_item = run.first_item + done;
    segment.items = items;
    RETURN_IF_ERROR(Add(segment));
    done += items;
  }
  return {};
}

}  // namespace gantry::engine
