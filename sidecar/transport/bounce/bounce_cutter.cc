#include "sidecar/transport/bounce/bounce_cutter.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "lib/wire/stage_types.h"
#include "sidecar/transport/bounce/bounce_remote_buffer.h"
#include "sidecar/transport/rdma/memory_region_set.h"

namespace gantry::transport {

BounceCutter::BounceCutter(const MovePlan& plan) : cursor_(plan) {
  std::unordered_set<const memory::MappedAllocation*> on_nics;
  for (const auto& one : plan.local_on_nics) {
    const auto* const set = dynamic_cast<const MemoryRegionSet*>(one.get());
    if (set == nullptr) continue;
    for (const memory::NicPiece& piece : set->pieces()) on_nics.insert(piece.allocation.get());
  }
  for (const auto& local : plan.local) {
    const bool staged = local->kind() == wire::MemoryKind::kGpu && !on_nics.contains(local.get());
    local_staged_.push_back(staged);
    needs_local_ |= staged;
  }
  for (const RemoteAllocation& remote : plan.remote) {
    remote_staged_.push_back(BounceRemoteBuffer::IsStaged(remote));
    needs_remote_ |= remote_staged_.back();
  }
}

BouncePart BounceCutter::Cut(uint64_t bytes_max) {
  BouncePart part;
  while (!cursor_.at_end() && part.ranges.size() < wire::kStagedRangesMax) {
    const auto stretch = cursor_.Look(bytes_max - part.bytes, bytes_max);
    if (!stretch) break;
    Add(*stretch, &part);
    AddPiece(stretch->segment, stretch->length, &part.pieces);
    cursor_.Pass(*stretch);
  }
  return part;
}

void BounceCutter::Add(const BlockCursor::Stretch& stretch, BouncePart* part) const {
  part->bytes += stretch.length;
  if (local_staged_[stretch.local_allocation]) part->local_staged += stretch.length;
  if (remote_staged_[stretch.remote_allocation]) part->remote_staged += stretch.length;
  if (!part->ranges.empty()) {
    BouncePart::Range& last = part->ranges.back();
    if (last.local_allocation == stretch.local_allocation &&
        last.remote_allocation == stretch.remote_allocation &&
        last.local_offset + last.length == stretch.local_offset &&
        last.remote_offset + last.length == stretch.remote_offset) {
      last.length += stretch.length;
      return;
    }
  }
  part->ranges.push_back({stretch.local_allocation, stretch.remote_allocation, stretch.local_offset,
                          stretch.remote_offset, stretch.length});
}

}  // namespace gantry::transport
