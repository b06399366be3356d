// The sidecar's host memory for GPU bytes on their way to or from the network. It is mapped in this
// process and, pinned for the GPU, in every copy worker. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lib/base/result.h"
#include "sidecar/memory/mapped_allocation.h"

namespace gantry::memory {

class StagingMemory {
 public:
  // Populates all pages, so that a lack of memory fails here and not in a copy.
  static Result<std::unique_ptr<StagingMemory>> Create(MemoryMapper& mapper, uint64_t bytes);

  // As mapped in the workers.
  const std::shared_ptr<const MappedAllocation>& allocation() const { return allocation_; }
  std::span<std::byte> bytes() const { return bytes_; }  // as mapped in this process

 private:
  StagingMemory(std::shared_ptr<const MappedAllocation> allocation, std::span<std::byte> bytes)
      : allocation_(std::move(allocation)), bytes_(bytes) {}

  const std::shared_ptr<const MappedAllocation> allocation_;
  const std::span<std::byte> bytes_;  // of allocation_
};

}  // namespace gantry::memory
