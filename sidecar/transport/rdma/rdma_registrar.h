// Registers buffers on the devices, and finds the region that has a byte of an allocation, for
// whoever moves it from or to here. Outlives what it registered. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/memory/nic_memory.h"
#include "sidecar/transport/rdma/memory_region_set.h"
#include "sidecar/transport/rdma/rdma_devices.h"

namespace gantry::transport {

class RdmaRegistrar final : public memory::NicRegistrar {
 public:
  struct Found {
    std::shared_ptr<const MemoryRegionSet> set;  // null: no buffer has the byte
    size_t chunk = 0;                            // of set->list()
    uint64_t offset = 0;                         // of the byte in that chunk
  };

  // `devices` outlives this.
  explicit RdmaRegistrar(const RdmaDevices& devices) : devices_(devices) {}

  Result<std::shared_ptr<const memory::NicMemory>> Register(
      const std::vector<memory::NicPiece>& pieces, const wire::Access& access) override
      EXCLUDES(mutex_);
  // The region of any buffer around the byte, which reaches furthest of a few.
  Found Find(const memory::MappedAllocation& allocation, uint64_t offset) const EXCLUDES(mutex_);
  // Some buffer in it is registered.
  bool Knows(const memory::MappedAllocation& allocation) const EXCLUDES(mutex_);
  size_t chunks() const EXCLUDES(mutex_);  // of all buffers, on one device

 private:
  struct Entry {
    uint64_t end = 0;
    size_t chunk = 0;
    const MemoryRegionSet* set = nullptr;
    std::weak_ptr<const MemoryRegionSet> held;
  };
  // By where they begin in the allocation.
  using Entries = std::multimap<uint64_t, Entry>;

  void Add(const std::shared_ptr<const MemoryRegionSet>& set) EXCLUDES(mutex_);
  void Remove(const MemoryRegionSet& set) EXCLUDES(mutex_);

  const RdmaDevices& devices_;

  mutable Mutex mutex_;
  std::map<const memory::MappedAllocation*, Entries> allocations_ GUARDED_BY(mutex_);
  size_t chunks_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gantry::transport
