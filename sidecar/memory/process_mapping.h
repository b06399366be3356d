// An allocation's bytes mapped in this process, for transports that send and receive them here.
// Mapped at the first use, kept as long as the allocation. The seals are asked before the length,
// so an access to what Bytes returns is no SIGBUS; holes in huge pages are the exception.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>

#include "lib/base/mutex.h"
#include "lib/base/result.h"
#include "sidecar/memory/host_memory.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::memory {

class ProcessMapping {
 public:
  // The source outlives this.
  explicit ProcessMapping(const AllocationSource& source) : source_(source) {}

  // Returns the whole allocation; pages are read-only if the source is. Mapped once, also for
  // concurrent callers; a failure is retried by the next call. Does not fill the page tables.
  // kPathUnavailable: no host memory, or its file can shrink, and this process does not touch it.
  Result<std::span<std::byte>> Bytes() const;
  // The same, also of a file that can shrink, for system calls and devices. These answer with an
  // error where pages are missing. REQUIRES that no code of this process accesses the bytes.
  Result<std::span<std::byte>> BytesForDevices() const EXCLUDES(mutex_);
  // Returns true for the first call only. That caller must have Populate called on a thread that
  // may block.
  bool ClaimPopulating() const {
    return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true);
  }
  // Fills the page tables if the owner has touched all pages; returns whether it did. Slow for
  // large allocations; concurrent accesses take page faults.
  Result<bool> Populate() const EXCLUDES(mutex_);

 private:
  const AllocationSource& source_;

  mutable Mutex mutex_;
  mutable std::optional<HostMapping> mapping_ GUARDED_BY(mutex_);
  // Set once, to the contents of mapping_.
  mutable std::atomic<const HostMapping*> ready_ = nullptr;
  mutable std::atomic<bool> claimed_ = false;
};

}  // namespace gantry::memory
