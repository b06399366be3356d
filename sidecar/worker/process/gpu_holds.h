// The mappings that a GPU works on: each stays mapped until the last job that uses it is done.
// Found by its number, as a job over pieces of virtual memory uses another pair for every block.
// Copy thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sidecar/worker/process/mapping_table.h"

namespace gantry::worker {

class GpuHolds {
 public:
  explicit GpuHolds(MappingTable* mappings);

  // False: before another pair is held, jobs have to be done and released.
  bool HasRoomForTwo() const { return free_guards_.size() >= 2; }
  // The mapping, if it is held: it stays mapped at least until the next Release.
  std::optional<MappedBytes> Find(memory::MappingId id) const;
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
    size_t guard = 0;
  };

  MappingTable* const mappings_;
  std::vector<Held> held_;
  std::vector<uint32_t> behind_;  // by slot: one more than its place in held_; 0: it is not held
  std::vector<size_t> free_guards_;
};

}  // namespace gantry::worker
