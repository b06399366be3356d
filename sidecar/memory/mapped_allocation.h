// One allocation that is mapped in the copy workers; destroying the last reference unmaps it.
// Buffers inside it and transfers that use them share it. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "sidecar/memory/memory_mapper.h"
#include "sidecar/memory/process_mapping.h"

namespace gantry::memory {

class MappedAllocation {
 public:
  // Blocks until all workers have mapped it. `mapper` outlives the object.
  static Result<std::shared_ptr<const MappedAllocation>> Create(MemoryMapper& mapper,
                                                                AllocationSource source);
  MappedAllocation(const MappedAllocation&) = delete;
  MappedAllocation& operator=(const MappedAllocation&) = delete;
  ~MappedAllocation();

  MappingId mapping() const { return mapping_; }
  uint64_t size() const { return source_.size; }
  bool writable() const { return source_.writable; }
  // True for memory that this process must not touch, so that bytes pass through staging memory:
  // memory of a GPU, and host memory whose file can shrink.
  bool for_workers_only() const {
    return source_.kind == wire::MemoryKind::kGpu || source_.unsealed;
  }
  bool unsealed() const { return source_.unsealed; }  // host memory whose file can shrink
  // kFdTooShort: the file can shrink, and has fewer bytes than the allocation. Two system calls
  // for such a file, and none for others.
  Status CheckNotTruncated() const {
    return unsealed() ? memory::CheckNotTruncated(fd()->get(), size()) : Status();
  }
  wire::MemoryKind kind() const { return source_.kind; }
  const MemoryIdentity& identity() const { return identity_; }
  const wire::GpuFacts& gpu() const { return source_.gpu; }  // GPU memory only
  const DmaBuf& dma_buf() const { return source_.dma_buf; }  // GPU memory only
  const std::shared_ptr<const UniqueFd>& fd() const { return source_.fd; }
  // This process's own mapping, for transports that touch the bytes themselves.
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
