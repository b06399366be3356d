// One allocation mapped in the copy workers; the last reference to go unmaps it. Shared by the
// buffers inside of it and by the transfers that use them. Thread-safe.
#pragma once

#include <memory>

#include "sidecar/memory/memory_mapper.h"

namespace gantry::memory {

class MappedAllocation {
 public:
  static Result<std::shared_ptr<const MappedAllocation>> Create(MemoryMapper& mapper,
                                                                AllocationSource source);
  MappedAllocation(const MappedAllocation&) = delete;
  MappedAllocation& operator=(const MappedAllocation&) = delete;
  ~MappedAllocation();

  MappingId mapping() const { return mapping_; }
  uint64_t size() const { return source_.size; }
  bool writable() const { return source_.writable; }
  wire::MemoryKind kind() const { return source_.kind; }
  const std::shared_ptr<const UniqueFd>& fd() const { return source_.fd; }

 private:
  MappedAllocation(MemoryMapper& mapper, AllocationSource source, MappingId mapping);

  MemoryMapper& mapper_;
  const AllocationSource source_;
  const MappingId mapping_;
};

}  // namespace gantry::memory
