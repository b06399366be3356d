// The allocations that a worker has mapped. One control thread adds and removes, one copy thread
// looks up without a lock; what the copy thread has protected is not unmapped under it.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/memory/host_memory.h"
#include "sidecar/worker/process/segment_copy.h"

namespace gantry::worker {

// The guards of what the processor copies; the others are for what GPUs work on: so many that the
// jobs under way find room, also over pieces of 2 MiB.
inline constexpr size_t kSourceGuard = 0;
inline constexpr size_t kDestinationGuard = 1;
inline constexpr size_t kFirstGpuGuard = 2;
inline constexpr size_t kGuards = 2 + 4096;

// Twice a cache of 128 GiB in pieces of 2 MiB. Of the host's memory Linux lets a process map fewer
// allocations by default (vm.max_map_count), and refuses the next one.
inline constexpr uint32_t kMappingSlots = 131072;

class MappingTable {
 public:
  MappingTable();
  MappingTable(const MappingTable&) = delete;
  MappingTable& operator=(const MappingTable&) = delete;
  ~MappingTable();

  // Control thread. The slot must be free, and the generation not 0.
  Status Add(memory::MappingId id, memory::HostMapping mapping,
             std::unique_ptr<gpu::GpuHostMemory> pinned = nullptr);
  Status Add(memory::MappingId id, memory::GpuMapping mapping, bool writable);
  // Control thread. Returns when it is unmapped; waits for a copy that still uses it, which by
  // contract there is none of. device_error: a driver holds on to pinned memory, which therefore
  // stays mapped, without a slot.
  Status Remove(memory::MappingId id);
  size_t size() const { return size_; }
  // Control thread: the mapping with this id, or nothing. It stays until Remove.
  std::optional<MappedBytes> Find(memory::MappingId id) const;

  // Copy thread: the mapping with this id, or nothing when the id is stale. It stays mapped until
  // the same `guard` protects another one or is released.
  std::optional<MappedBytes> Protect(size_t guard, memory::MappingId id);
  void Release(size_t guard);

 private:
  struct Entry {
    uint32_t generation = 0;
    std::variant<memory::HostMapping, memory::GpuMapping> mapping;
    MappedBytes bytes;
    std::unique_ptr<gpu::GpuHostMemory> pinned = nullptr;  // of host memory; goes before that
  };

  Status Add(memory::MappingId id, std::unique_ptr<Entry> entry);

  void WaitUntilUnused(const Entry* entry) const;

  std::vector<std::atomic<Entry*>> slots_;                         // written by the control thread
  std::array<std::atomic<const Entry*>, kGuards> protected_ = {};  // written by the copy thread
  size_t size_ = 0;                                                // control thread
};

}  // namespace gantry::worker
