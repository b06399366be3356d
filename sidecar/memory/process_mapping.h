// An allocation's bytes in this process itself, mapped when they are asked for first and kept as
// long as the allocation: for transports that send and receive them from here. Safe against SIGBUS
// because registered files cannot shrink, but for holes in huge pages. Thread-safe.
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

  // The whole allocation; its pages are read-only when the source is. Mapped once, however many
  // ask at the same time; a failure is tried again by the next call. Does not fill the page tables.
  Result<std::span<std::byte>> Bytes() const EXCLUDES(mutex_);
  // True for the first call: that caller sees to it that Populate is called, by whom it may block.
  bool ClaimPopulating() const {
    return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true);
  }
  // Fills the page tables, if the owner touched all pages: takes time for a large allocation, and
  // who moves bytes meanwhile pays for the faults. True when it did.
  Result<bool> Populate() const EXCLUDES(mutex_);

 private:
  const AllocationSource& source_;

  mutable Mutex mutex_;
  mutable std::optional<HostMapping> mapping_ GUARDED_BY(mutex_);
  mutable std::atomic<const HostMapping*> ready_ = nullptr;  // set once, to what mapping_ holds
  mutable std::atomic<bool> claimed_ = false;
};

}  // namespace gantry::memory
