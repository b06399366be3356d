// Makes an allocation usable for copies: maps it in every copying process, and verifies that it is
// the right one. This folder owns the interface; the copy workers implement it. Thread-safe.
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
#include "sidecar/memory/host_memory.h"

namespace gantry::memory {

// Names one allocation in the mapping tables of all workers. Slots are reused, generations are not:
// workers refuse an old id.
struct MappingId {
  uint32_t slot = 0;
  uint32_t generation = 0;  // never 0 for a valid id

  bool operator==(const MappingId&) const = default;
};

// Two allocations with equal identities are the same memory, however often it was handed over. Host
// memory: device and inode of the file. GPU memory: a digest of its owner, its GPU and the driver's
// allocation id, but not of the handle. Two numbers, because plans compare one per block.
struct MemoryIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  auto operator<=>(const MemoryIdentity&) const = default;
};

// The data that a worker needs to map an allocation. The descriptor is kept for workers that start
// later and for peers.
struct AllocationSource {
  wire::MemoryKind kind = wire::MemoryKind::kHost;
  std::shared_ptr<const UniqueFd> fd;
  uint64_t size = 0;
  bool writable = false;
  wire::GpuFacts gpu = {};  // GPU memory only
  // The owner of the GPU's buffer ids, as this sidecar identifies it and not as it names itself.
  // Unique per process that exports GPU memory.
  std::string exporter = {};
  // GPU memory only: true when a peer's workload owns it, possibly in another pod. `identity` is
  // then the one that the peer's sidecar assigned.
  bool of_peer = false;
  std::optional<MemoryIdentity> identity = {};
  // GPU memory only: its address in the owning process; 0: unknown.
  uint64_t base = 0;
  // Host memory that each worker with a GPU registers with the GPU driver, for direct copies.
  bool pinned = false;
  // Host memory whose owner can shrink its file. MappedAllocation::Create alone decides it, before
  // anything maps the file, and workers are told: a file that is sealed later stays unsealed here.
  bool unsealed = false;
  DmaBuf dma_buf = {};  // GPU memory only; workers do not use it
};

// Returns true for memory that is shared by a legacy handle. No process with the same PID number as
// its owner can map it.
inline bool IsByHandle(const AllocationSource& source) {
  return source.kind == wire::MemoryKind::kGpu && source.gpu.form == wire::GpuExport::kHandle;
}

// Fails when the descriptor or the GPU facts do not identify the memory.
Result<MemoryIdentity> IdentityOf(const AllocationSource& source);

// Bytes that the owner wrote for verification. Workers receive this struct as it is.
struct MemoryProbe {
  MappingId mapping;
  uint64_t offset = 0;  // within the allocation
  uint32_t length = 0;  // bytes; 1 to bytes.size()
  std::array<char, wire::kNonceBytesMax> bytes{};
};

// A probe whose place holds other bytes.
struct ProbeMismatch {
  size_t probe = 0;    // its index
  std::string finder;  // reader, for a message: "copy worker 1"
  std::string found;   // in hexadecimal
};

class MemoryMapper {
 public:
  explicit MemoryMapper(Unsealed unsealed = Unsealed::kRefused) : unsealed_(unsealed) {}
  virtual ~MemoryMapper() = default;
  // Whether host memory is taken whose owner can shrink its file (--unsealed-memory).
  Unsealed unsealed() const { return unsealed_; }
  // Returns when every live worker has mapped it. If one fails, all unmap it again and the first
  // error is returned. Blocks.
  virtual Result<MappingId> Map(const AllocationSource& source) = 0;
  // REQUIRES that no copy in flight uses the mapping. Continues past failures.
  virtual Status Unmap(MappingId mapping) = 0;
  // Every live worker compares each probe through its own mapping. Returns the first mismatch, or
  // nothing. REQUIRES that the mappings stay and that every probe lies within its own.
  virtual Result<std::optional<ProbeMismatch>> Compare(std::span<const MemoryProbe> probes) = 0;

 private:
  const Unsealed unsealed_;
};

}  // namespace gantry::memory
