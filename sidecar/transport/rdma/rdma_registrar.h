// Registers buffers on the devices, and finds the region that has a byte of an allocation, for
// whoever moves it from or to here. Outlives what it registered. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
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

  // On which of the devices a buffer is registered: one at least.
  using Choose = std::function<DeviceSet(const std::vector<memory::NicPiece>& pieces)>;

  // `devices` outlives this. Without a choice all of them have every buffer.
  explicit RdmaRegistrar(const RdmaDevices& devices, Choose choose = {})
      : devices_(devices), choose_(std::move(choose)) {}

  Result<std::shared_ptr<const memory::NicMemory>> Register(
      const std::vector<memory::NicPiece>& pieces, const wire::Access& access) override
      EXCLUDES(mutex_);
  // The region of any buffer around the byte, which reaches furthest of a few.
  Found Find(const memory::MappedAllocation& allocation, uint64_t offset) const EXCLUDES(mutex_);
  // On which devices the buffers in it are registered, each such set once; empty: none is.
  std::vector<DeviceSet> SetsOf(const memory::MappedAllocation& allocation) const EXCLUDES(mutex_);
  size_t chunks(size_t device) const EXCLUDES(mutex_);  // of all buffers

 private:
  struct Entry {
    uint64_t end = 0;
    size_t chunk = 0;
    const MemoryRegionSet* set = nullptr;
    std::weak_ptr<const MemoryRegionSet> held;
  };
  struct Registered {
    std::multimap<uint64_t, Entry> entries;  // by where they begin in the allocation
    std::map<DeviceSet, size_t> chunks;      // by the devices that have them
  };

  void Add(const std::shared_ptr<const MemoryRegionSet>& set) EXCLUDES(mutex_);
  void Remove(const MemoryRegionSet& set) EXCLUDES(mutex_);

  const RdmaDevices& devices_;
  const Choose choose_;

  mutable Mutex mutex_;
  std::map<const memory::MappedAllocation*, Registered> allocations_ GUARDED_BY(mutex_);
  std::map<DeviceSet, size_t> chunks_ GUARDED_BY(mutex_);  // likewise
};

}  // namespace gantry::transport
