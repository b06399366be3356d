// What it takes to make an allocation usable for copies: map it in every process that copies, and
// look whether it is the right one.
// Owned here, implemented by the copy workers. Thread-safe.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lib/base/result.h"
#include "lib/base/unique_fd.h"
#include "lib/codec/buffer_types.h"
#include "sidecar/memory/dma_buf.h"

namespace gantry::memory {

// Names one allocation in the mapping tables of all workers. Slots are used again, generations
// are not: an old id is refused by the workers.
struct MappingId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // never 0 for a valid id

  bool operator==(const MappingId&) const = default;
};

// Two allocations of the same identity are the same memory, however often it was handed over: of
// host memory the same file; of GPU memory a digest of its owner, its GPU and the driver's id of
// the allocation, never of what it was handed over by. Two numbers, as plans compare one for every
// block.
struct MemoryIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  auto operator<=>(const MemoryIdentity&) const = default;
};

// What a worker needs in order to map an allocation. The descriptor is kept for workers that are
// started later and for peers.
struct AllocationSource {
  wire::MemoryKind kind = wire::MemoryKind::kHost;
  std::shared_ptr<const UniqueFd> fd;
  uint64_t size = 0;
  bool writable = false;
  wire::GpuFacts gpu = {};  // of GPU memory
  // Whose buffer ids these are, as this sidecar knows the owner and not as that calls itself:
  // differs between the processes that export GPU memory.
  std::string exporter = {};
  // Of GPU memory of a peer's workload, which may run in another pod; and the identity that its
  // sidecar has for it.
  bool of_peer = false;
  std::optional<MemoryIdentity> identity = {};
  // Of GPU memory: its address in its owner; 0: was not said.
  uint64_t base = 0;
  // Host memory that each worker with a GPU makes known to its driver, which then copies to and
  // from it directly.
  bool pinned = false;
  DmaBuf dma_buf = {};  // of GPU memory; not for the workers
};

// True of memory that no process whose PID has the same number as its owner's can map.
inline bool IsByHandle(const AllocationSource& source) {
  return source.kind == wire::MemoryKind::kGpu && source.gpu.form == wire::GpuExport::kHandle;
}

Result<MemoryIdentity> IdentityOf(const AllocationSource& source);

// Bytes that the owner of an allocation has put there. Goes to the workers as it is.
struct MemoryProbe {
  MappingId mapping;
  uint64_t offset = 0;  // within the allocation
  uint32_t length = 0;  // 1 to as many as there are bytes
  std::array<char, wire::kNonceBytesMax> bytes{};
};

// A probe in whose place other bytes were found.
struct ProbeMismatch {
  size_t probe = 0;    // its index
  std::string finder;  // who found them, for a message: "copy worker 1"
  std::string found;   // in hexadecimal
};

class MemoryMapper {
 public:
  virtual ~MemoryMapper() = default;
  // Returns when every live worker has it mapped; on a failure in any of them it is unmapped again
  // in all, and the first error is returned.
  virtual Result<MappingId> Map(const AllocationSource& source) = 0;
  // REQUIRES that no copy that uses the mapping is in flight. Goes on past failures.
  virtual Status Unmap(MappingId mapping) = 0;
  // Every live worker looks at each place through its own mapping. The first mismatch of one of
  // them, or nothing. REQUIRES that the mappings stay and that every probe lies within its own.
  virtual Result<std::optional<ProbeMismatch>> Compare(std::span<const MemoryProbe> probes) = 0;
};

}  // namespace gantry::memory
