// The mappings that a GPU works on: each stays mapped until the last job that uses it is done. Copy
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "sidecar/worker/mapping_table.h"

namespace gantry::worker {

class GpuHolds {
 public:
  explicit GpuHolds(MappingTable* mappings) : mappings_(mappings) {}

  // False: before another pair is held, jobs have to be done and released.
  bool HasRoomForTwo() const { return free_ >= 2; }
  // The mapping, for a job that is no older than those before; nothing when the id is stale.
  // REQUIRES room.
  std::optional<MappedBytes> Hold(memory::MappingId id, uint64_t job);
  // This job and those before it are done.
  void Release(uint64_t job);

 private:
  struct Held {
    memory::MappingId id;
    MappedBytes bytes;
    uint64_t last_job = 0;
    bool used = false;
  };

  MappingTable* const mappings_;
  std::array<Held, kGuards - kFirstGpuGuard> held_ = {};
  size_t free_ = kGuards - kFirstGpuGuard;
};

}  // namespace gantry::worker
