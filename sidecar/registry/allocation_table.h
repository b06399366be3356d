// The allocations behind the registered buffers, one record each. It is mapped while a buffer uses
// it. It is known, with its descriptor, while a buffer exists, also a suspended one. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::registry {

class AllocationRecord {
 public:
  AllocationRecord(uint64_t id, memory::MemoryMapper& mapper, memory::AllocationSource source);

  uint64_t id() const { return id_; }
  uint64_t size() const { return source_.size; }
  bool mapped() const EXCLUDES(mutex_);
  // kConflict when `told` contradicts what the record was created with.
  Status CheckSame(const memory::AllocationSource& told) const;

  // Returns the one mapping of this allocation. While one thread maps, other callers wait for it.
  // Blocks.
  Result<std::shared_ptr<const memory::MappedAllocation>> Map() EXCLUDES(mutex_);

 private:
  const uint64_t id_;
  memory::MemoryMapper& mapper_;
  const memory::AllocationSource source_;

  mutable Mutex mutex_;
  Condition changed_;
  bool mapping_ GUARDED_BY(mutex_) = false;
  std::weak_ptr<const memory::MappedAllocation> mapped_ GUARDED_BY(mutex_);
};

class AllocationTable {
 public:
  struct Totals {
    size_t mapped = 0;
    uint64_t mapped_bytes = 0;
  };

  explicit AllocationTable(memory::MemoryMapper& mapper) : mapper_(mapper) {}
  AllocationTable(const AllocationTable&) = delete;
  AllocationTable& operator=(const AllocationTable&) = delete;

  // Returns the record of this memory for this registration of a workload. Descriptors of one file
  // are one allocation, and so are handles with one driver id. kConflict when it is known with
  // another size or address. Does not map. The table outlives its records.
  Result<std::shared_ptr<AllocationRecord>> Find(uint64_t workload_generation,
                                                 memory::AllocationSource source) EXCLUDES(mutex_);
  Totals TotalsNow() const EXCLUDES(mutex_);
  // Whether host memory whose file can shrink is taken.
  memory::Unsealed unsealed() const { return mapper_.unsealed(); }

 private:
  // Workload generation, memory, writable.
  using Key = std::tuple<uint64_t, memory::MemoryIdentity, bool>;

  void Forget(const Key& key) EXCLUDES(mutex_);

  memory::MemoryMapper& mapper_;

  mutable Mutex mutex_;
  uint64_t next_id_ GUARDED_BY(mutex_) = 1;
  std::map<Key, std::weak_ptr<AllocationRecord>> records_ GUARDED_BY(mutex_);
};

}  // namespace gantry::registry
