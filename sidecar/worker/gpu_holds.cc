#include "sidecar/worker/gpu_holds.h"

namespace gantry::worker {

std::optional<MappedBytes> GpuHolds::Hold(memory::MappingId id, uint64_t job) {
  Held* unused = nullptr;
  for (Held& held : held_) {
    if (held.used && held.id == id) {
      held.last_job = job;
      return held.bytes;
    }
    if (!held.used && unused == nullptr) unused = &held;
  }
  const auto guard = kFirstGpuGuard + static_cast<size_t>(unused - held_.data());
  const std::optional<MappedBytes> bytes = mappings_->Protect(guard, id);
  if (!bytes) {
    mappings_->Release(guard);
    return std::nullopt;
  }
  *unused = {id, *bytes, job, true};
  --free_;
  return bytes;
}

void GpuHolds::Release(uint64_t job) {
  if (free_ == held_.size()) return;
  for (Held& held : held_) {
    if (!held.used || held.last_job > job) continue;
    held.used = false;
    ++free_;
    mappings_->Release(kFirstGpuGuard + static_cast<size_t>(&held - held_.data()));
  }
}

}  // namespace gantry::worker
