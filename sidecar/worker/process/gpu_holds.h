// The mappings that GPU jobs use: each stays mapped until the last job that uses it is done. Looked
// up by slot number, since a job over pieces of virtual memory uses another pair per block. Used by
// the copy thread.
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

  // False: complete and release jobs before holding another pair.
  bool HasRoomForTwo() const { return free_guards_.size() >= 2; }
  // Returns the mapping if it is held. It stays mapped at least until the next Release.
  std::optional<MappedBytes> Find(memory::MappingId id) const;
  // Holds the mapping for `job`, which is no older than earlier jobs. Nothing when the id is stale.
  // REQUIRES room.
  std::optional<MappedBytes> Hold(memory::MappingId id, uint64_t job);
  // This job and all earlier ones are done.
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
  std::vector<uint32_t> behind_;  // index + 1 in held_ by slot; 0: not held
  std::vector<size_t> free_guards_;
};

}  // namespace gantry::worker
