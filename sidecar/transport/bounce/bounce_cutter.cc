#include "sidecar/transport/bounce/bounce_cutter.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "lib/wire/stage_types.h"
#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/rdma/verbs/memory_region_set.h"

namespace gantry::transport {

BounceCutter::BounceCutter(const MovePlan& plan) : cursor_(plan), nic_extents_(plan.local.size()) {
  for (const auto& local : plan.local) {
    on_gpu_.push_back(local->kind() == wire::MemoryKind::kGpu);
  }
  FindOnNics(plan);
  for (const RemoteAllocation& remote : plan.remote) {
    remote_staged_.push_back(BounceRemoteBuffer::IsStaged(remote));
    needs_remote_ |= remote_staged_.back();
  }
}

void BounceCutter::FindOnNics(const MovePlan& plan) {
  std::unordered_map<const memory::MappedAllocation*, size_t> places;
  for (size_t i = 0; i < plan.local.size(); ++i) places.emplace(plan.local[i].get(), i);
  for (const auto& one : plan.local_nic_memory) {
    const auto* const set = dynamic_cast<const MemoryRegionSet*>(one.get());
    if (set == nullptr) continue;
    for (const memory::NicPiece& piece : set->pieces()) {
      const auto place = places.find(piece.allocation.get());
      if (place == places.end()) continue;
      nic_extents_[place->second].push_back({piece.offset, piece.offset + piece.length});
    }
  }
  for (std::vector<Extent>& extents : nic_extents_) {
    std::sort(extents.begin(), extents.end(),
              [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    std::vector<Extent> apart;
    for (const Extent& extent : extents) {
      if (apart.empty() || apart.back().end < extent.begin) {
        apart.push_back(extent);
      } else {
        apart.back().end = std::max(apart.back().end, extent.end);
      }
    }
    extents = std::move(apart);
  }
}

bool BounceCutter::IsStagedHere(const BlockCursor::Stretch& stretch) const {
  if (!on_gpu_[stretch.local_allocation]) return false;
  const std::vector<Extent>& extents = nic_extents_[stretch.local_allocation];
  const auto next =
      std::upper_bound(extents.begin(), extents.end(), stretch.local_offset,
                       [](uint64_t at, const Extent& extent) { return at < extent.begin; });
  return next == extents.begin() || stretch.local_offset + stretch.length > std::prev(next)->end;
}

BouncePart BounceCutter::Cut(uint64_t bytes_max) {
  BouncePart part;
  while (!cursor_.at_end() && part.ranges.size() < wire::kStagedRangesMax) {
    const auto stretch = cursor_.Peek(bytes_max - part.bytes, bytes_max);
    if (!stretch) break;
    Add(*stretch, &part);
    AddPiece(stretch->segment, stretch->length, &part.pieces);
    cursor_.Pass(*stretch);
  }
  return part;
}

void BounceCutter::Add(const BlockCursor::Stretch& stretch, BouncePart* part) const {
  const bool local_staged = IsStagedHere(stretch);
  const bool remote_staged = remote_staged_[stretch.remote_allocation];
  part->bytes += stretch.length;
  if (local_staged) part->local_staged += stretch.length;
  if (remote_staged) part->remote_staged += stretch.length;
  if (!part->ranges.empty()) {
    BouncePart::Range& last = part->ranges.back();
    if (last.local_allocation == stretch.local_allocation &&
        last.remote_allocation == stretch.remote_allocation &&
        last.local_offset + last.length == stretch.local_offset &&
        last.remote_offset + last.length == stretch.remote_offset &&
        last.local_staged == local_staged) {
      last.length += stretch.length;
      return;
    }
  }
  part->ranges.push_back({stretch.local_allocation, stretch.remote_allocation, stretch.local_offset,
                          stretch.remote_offset, stretch.length, local_staged, remote_staged});
}

}  // namespace gantry::transport
