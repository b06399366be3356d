// One allocation mapped in the copy workers; the last reference to go unmaps it. Shared by the
// buffers inside of it and by the transfers that use them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "sidecar/memory/memory_mapper.h"
#include "sidecar/memory/process_mapping.h"

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
  const MemoryIdentity& identity() const { return identity_; }
  const wire::GpuFacts& gpu() const { return source_.gpu; }  // of GPU memory
  const DmaBuf& dma_buf() const { return source_.dma_buf; }  // likewise
  const std::shared_ptr<const UniqueFd>& fd() const { return source_.fd; }
  // For transports whose bytes go through this process itself.
  const ProcessMapping& in_process() const { return in_process_; }

 private:
  MappedAllocation(MemoryMapper& mapper, AllocationSource source, MemoryIdentity identity,
                   MappingId mapping);

  MemoryMapper& mapper_;
  const AllocationSource source_;
  const MemoryIdentity identity_;
  const MappingId mapping_;
  const ProcessMapping in_process_;
};

}  // namespace gantry::memory
