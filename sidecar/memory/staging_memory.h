// The host memory through which the bytes of GPUs go to and come from the network: of the sidecar,
// mapped in this process and, pinned for the GPU, in every copy worker. Immutable; thread-safe.
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
  // Takes the pages at once: their lack is noticed at the start and not by a copy.
  static Result<std::unique_ptr<StagingMemory>> Create(MemoryMapper& mapper, uint64_t bytes);

  // As the workers know it.
  const std::shared_ptr<const MappedAllocation>& allocation() const { return allocation_; }
  std::span<std::byte> bytes() const { return bytes_; }  // as this process does

 private:
  StagingMemory(std::shared_ptr<const MappedAllocation> allocation, std::span<std::byte> bytes)
      : allocation_(std::move(allocation)), bytes_(bytes) {}

  const std::shared_ptr<const MappedAllocation> allocation_;
  const std::span<std::byte> bytes_;  // of allocation_
};

}  // namespace gantry::memory
