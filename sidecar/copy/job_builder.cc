#include "sidecar/copy/job_builder.h"

#include <utility>

namespace gantry::transport {
namespace {

// What a transfer of fewer brings may still be in a cache when somebody reads it, and what is
// brought into less memory when it is written again.
constexpr uint64_t kStreamedPlanBytes = 8 << 20;
constexpr uint64_t kStreamedInto = 256 << 20;

worker::CopySegment CopyOf(const MoveSegment& segment, const MovePlan& plan) {
  const memory::MappedAllocation& here = *plan.local[segment.local_allocation];
  const memory::MappedAllocation& there = *plan.remote[segment.remote_allocation].mapped;
  const bool write = plan.operation == wire::Operation::kWrite;
  worker::CopySegment copy;
  copy.length = segment.length;
  copy.count = segment.count;
  copy.source = there.mapping();
  copy.source_offset = segment.remote_offset;
  copy.source_stride = segment.remote_stride;
  copy.destination = here.mapping();
  copy.destination_offset = segment.local_offset;
  copy.destination_stride = segment.local_stride;
  copy.streamed =
      plan.bytes >= kStreamedPlanBytes && (write ? there : here).size() >= kStreamedInto;
  if (write) {
    std::swap(copy.source, copy.destination);
    std::swap(copy.source_offset, copy.destination_offset);
    std::swap(copy.source_stride, copy.destination_stride);
  }
  return copy;
}

// Where the blocks of the runs lie. Specialised: it runs for each block of each pair of buffers.
template <bool write, bool plain>
void PlacesOf(const BlockPair& pair, std::span<const BlockRun> runs, worker::BlockPlaces* places) {
  for (const BlockRun& run : runs) {
    const uint64_t local = plain ? pair.local_base + run.local_unit * pair.local_stride
                                 : pair.local_offset(run.local_unit);
    const uint64_t remote = plain ? pair.remote_base + run.remote_unit * pair.remote_stride
                                  : pair.remote_offset(run.remote_unit);
    *places++ = {write ? local : remote, write ? remote : local};
  }
}

}  // namespace

void JobBuilder::Begin(const MovePlan& plan, worker::GpuMeans means, bool listed,
                       size_t segments_max) {
  plan_ = &plan;
  means_ = means;
  listed_ = listed;
  job_.clear();
  place_count_ = 0;
  if (listed && places_.size() < segments_max) places_.resize(segments_max);
}

worker::CopySegment& JobBuilder::ListFor(const MoveSegment& block) {
  if (!job_.empty()) {
    worker::CopySegment& last = job_.back();
    if (!last.places.empty() && last.length == block.length &&
        last_local_ == block.local_allocation && last_remote_ == block.remote_allocation) {
      return last;
    }
  }
  job_.push_back(CopyOf(block, *plan_));
  worker::CopySegment& list = job_.back();
  list.count = 0;
  list.means = means_;
  list.places = {places_.data() + place_count_, 0};
  last_local_ = block.local_allocation;
  last_remote_ = block.remote_allocation;
  return list;
}

void JobBuilder::Add(const MoveSegment& segment) {
  if (!listed_ || segment.count != 1) {
    job_.push_back(CopyOf(segment, *plan_));
    job_.back().means = means_;
    return;
  }
  worker::CopySegment& list = ListFor(segment);
  worker::BlockPlaces place{segment.remote_offset, segment.local_offset};
  if (plan_->operation == wire::Operation::kWrite) std::swap(place.source, place.destination);
  places_[place_count_++] = place;
  list.places = {list.places.data(), ++list.count};
}

void JobBuilder::AddBlocks(const BlockPair& pair, std::span<const BlockRun> runs) {
  if (!listed_) {
    for (const BlockRun& run : runs) Add(SegmentList::SegmentOf(pair, run));
    return;
  }
  worker::CopySegment& list = ListFor(SegmentList::SegmentOf(pair, runs.front()));
  const bool write = plan_->operation == wire::Operation::kWrite;
  const bool plain = pair.local_parts == 1 && pair.remote_parts == 1;
  const auto places = write ? (plain ? PlacesOf<true, true> : PlacesOf<true, false>)
                            : (plain ? PlacesOf<false, true> : PlacesOf<false, false>);
  places(pair, runs, places_.data() + place_count_);
  place_count_ += runs.size();
  list.count += static_cast<uint32_t>(runs.size());
  list.places = {list.places.data(), list.count};
}

}  // namespace gantry::transport
