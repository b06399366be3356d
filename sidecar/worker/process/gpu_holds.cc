#include "sidecar/worker/process/gpu_holds.h"

#include <numeric>

namespace gantry::worker {

GpuHolds::GpuHolds(MappingTable* mappings)
    : mappings_(mappings), behind_(kMappingSlots), free_guards_(kGuards - kFirstGpuGuard) {
  held_.reserve(free_guards_.size());
  std::iota(free_guards_.begin(), free_guards_.end(), kFirstGpuGuard);
}

std::optional<MappedBytes> GpuHolds::Find(memory::MappingId id) const {
  if (id.slot >= kMappingSlots || behind_[id.slot] == 0) return std::nullopt;
  const Held& held = held_[behind_[id.slot] - 1];
  return held.id == id ? std::optional(held.bytes) : std::nullopt;
}

std::optional<MappedBytes> GpuHolds::Hold(memory::MappingId id, uint64_t job) {
  if (id.slot >= kMappingSlots) return std::nullopt;
  if (behind_[id.slot] != 0) {
    Held& held = held_[behind_[id.slot] - 1];
    // Nobody else can have the slot before this one is let go.
    if (held.id != id) return std::nullopt;
    held.last_job = job;
    return held.bytes;
  }
  const size_t guard = free_guards_.back();
  const std::optional<MappedBytes> bytes = mappings_->Protect(guard, id);
  if (!bytes) {
    mappings_->Release(guard);
    return std::nullopt;
  }
  free_guards_.pop_back();
  held_.push_back({id, *bytes, job, guard});
  behind_[id.slot] = static_cast<uint32_t>(held_.size());
  return bytes;
}

void GpuHolds::Release(uint64_t job) {
  for (size_t i = 0; i < held_.size();) {
    const Held done = held_[i];
    if (done.last_job > job) {
      ++i;
      continue;
    }
    mappings_->Release(done.guard);
    free_guards_.push_back(done.guard);
    held_[i] = held_.back();
    behind_[held_[i].id.slot] = static_cast<uint32_t>(i + 1);
    behind_[done.id.slot] = 0;
    held_.pop_back();
  }
}

}  // namespace gantry::worker
