// The allocations that a worker has mapped. One control thread adds and removes; one copy thread
// looks up without a lock. A mapping that the copy thread has protected is not unmapped (hazard
// pointers).
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

// One guard each for the source and destination of CPU copies. The others protect memory of GPU
// copies: enough for the jobs in flight, also over pieces of 2 MiB.
inline constexpr size_t kSourceGuard = 0;
inline constexpr size_t kDestinationGuard = 1;
inline constexpr size_t kFirstGpuGuard = 2;
inline constexpr size_t kGuards = 2 + 4096;

// Twice a cache of 128 GiB in pieces of 2 MiB. Linux allows a process fewer mappings of host memory
// by default (vm.max_map_count), and refuses the next one.
inline constexpr uint32_t kMappingSlots = 131072;

class MappingTable {
 public:
  MappingTable();
  MappingTable(const MappingTable&) = delete;
  MappingTable& operator=(const MappingTable&) = delete;
  ~MappingTable();

  // Control thread. REQUIRES a free slot and a generation other than 0.
  Status Add(memory::MappingId id, memory::HostMapping mapping,
             std::unique_ptr<gpu::GpuHostMemory> pinned = nullptr);
  Status Add(memory::MappingId id, memory::GpuMapping mapping, bool writable);
  // Control thread. Returns when the memory is unmapped. Waits for a copy that still uses it; by
  // contract there is none. kDeviceError: the driver failed to unpin the memory, which then stays
  // mapped without a slot.
  Status Remove(memory::MappingId id);
  size_t size() const { return size_; }
  // Control thread. Returns the mapping, which stays until Remove, or nothing.
  std::optional<MappedBytes> Find(memory::MappingId id) const;

  // Copy thread. Returns the mapping, or nothing for a stale id. It stays mapped until the same
  // `guard` protects another one or is released.
  std::optional<MappedBytes> Protect(size_t guard, memory::MappingId id);
  void Release(size_t guard);

 private:
  struct Entry {
    uint32_t generation = 0;
    std::variant<memory::HostMapping, memory::GpuMapping> mapping;
    MappedBytes bytes;
    // For host memory; destroyed before the mapping.
    std::unique_ptr<gpu::GpuHostMemory> pinned = nullptr;
  };

  Status Add(memory::MappingId id, std::unique_ptr<Entry> entry);

  void WaitUntilUnused(const Entry* entry) const;

  std::vector<std::atomic<Entry*>> slots_;                         // written by the control thread
  std::array<std::atomic<const Entry*>, kGuards> protected_ = {};  // written by the copy thread
  size_t size_ = 0;                                                // used by the control thread
};

}  // namespace gantry::worker
