// The allocations that the workers have mapped, and the requests to them about mappings. A mapping
// is in all usable workers, or in none; for GPU memory in all with a GPU. A new worker gets all
// mappings before it is usable. Thread-safe: one request at a time, since the lock is held until
// the workers answer.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/memory/memory_mapper.h"
#include "sidecar/worker/pool/gpu_registry.h"
#include "sidecar/worker/pool/worker_slot.h"

namespace gantry::worker {

class MappingDirectory {
 public:
  MappingDirectory(const std::vector<std::unique_ptr<WorkerSlot>>& slots, Patience patience)
      : slots_(slots), patience_(patience) {}

  // `in_turn` maps in one worker after another.
  Result<memory::MappingId> Map(const memory::AllocationSource& source, bool in_turn)
      EXCLUDES(mutex_);
  Status Unmap(memory::MappingId id) EXCLUDES(mutex_);
  // Bytes of mapped GPU memory, each allocation counted once. Does not wait for the workers.
  uint64_t gpu_bytes() const { return gpu_bytes_.load(); }

  // Counts workers that Restore refused because an owner of GPU memory has the same PID.
  uint64_t pid_conflicts() const { return pid_conflicts_.load(); }

  // See MemoryMapper::Compare.
  Result<std::optional<memory::ProbeMismatch>> Compare(std::span<const memory::MemoryProbe> probes)
      EXCLUDES(mutex_);

  // Makes a usable worker without a GPU try again. Does not wait for the driver: returns false
  // while the attempt runs, so call again. A worker that gets its GPU first maps all GPU memory,
  // and the sidecar's own memory is pinned for it. kWorkerLost: it was lost or has an owner's PID,
  // and was ended. Any other error is why it still has no GPU.
  Result<bool> OpenGpu(WorkerSlot& slot, WorkerProcess& process, GpuRegistry& gpu_registry)
      EXCLUDES(mutex_);

  // Maps everything in a new worker and makes it usable. A mapping that the worker refuses fails
  // the start, unless `tolerant`: then it is left out and logged. Any GPU job may go to any worker
  // with a GPU. So a worker that cannot map all GPU memory counts as having no GPU; `has_gpu` then
  // receives the reason.
  Status Restore(WorkerSlot& slot, WorkerProcess& process, bool tolerant, Status* has_gpu)
      EXCLUDES(mutex_);

 private:
  struct Mapping {
    uint32_t generation = 0;  // 0: the slot is free
    memory::AllocationSource source;
    memory::MemoryIdentity identity;  // for GPU memory
  };
  // Usable workers and their answers. Keeps the processes alive, since replies point to them.
  struct Participants {
    std::vector<WorkerSlot*> slots;
    std::vector<std::shared_ptr<WorkerProcess>> processes;
    std::vector<WorkerReply> replies;
  };

  // For GPU memory only workers with a GPU.
  Participants UsableWorkers(wire::MemoryKind kind) const REQUIRES(mutex_);
  // Ends the workers that were lost during the exchange. Returns the first error of the others.
  Status ExchangeWith(Participants* participants, WorkerRequest request, int fd,
                      bool in_turn = false) REQUIRES(mutex_);
  // Returns how many of the first probes concern the same kind of memory.
  size_t OfOneKind(std::span<const memory::MemoryProbe> probes) const EXCLUDES(mutex_);
  wire::MemoryKind KindOf(memory::MappingId id) const REQUIRES(mutex_);
  // REQUIRES probes of one kind that fit one list.
  Result<std::optional<memory::ProbeMismatch>> CompareSome(
      std::span<const memory::MemoryProbe> probes) EXCLUDES(mutex_);
  // kWorkerLost: the worker is unusable. Any other error: why this mapping failed.
  Status MapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  Status UnmapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  // Unmaps GPU memory among the mappings before `end`, all of which the worker has.
  Status UnmapGpuMemory(WorkerSlot& slot, WorkerProcess& process, uint32_t end) REQUIRES(mutex_);
  // Pins memory that the worker mapped before it had a GPU. No copy may use it on the GPU yet.
  Status PinInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  // Maps all GPU memory in a worker that has just got its GPU, or none of it.
  Status MapGpuMemory(WorkerSlot& slot, WorkerProcess& process) REQUIRES(mutex_);
  // Returns kWorkerLost, and counts it, when the worker has the PID of an owner of GPU memory.
  Status LeavesRoomForPids(const WorkerProcess& process) REQUIRES(mutex_);
  WorkerRequest MapRequest(memory::MappingId id, const memory::AllocationSource& source) const;
  void RollBack(const Participants& participants, memory::MappingId id) REQUIRES(mutex_);
  // One piece of GPU memory may have a read-only and a writable mapping.
  void CountGpuMemory(Mapping* mapping) REQUIRES(mutex_);
  void DiscountGpuMemory(const Mapping& mapping) REQUIRES(mutex_);
  Result<memory::MappingId> TakeId() REQUIRES(mutex_);
  void Release(memory::MappingId id) REQUIRES(mutex_);

  const std::vector<std::unique_ptr<WorkerSlot>>& slots_;
  const Patience patience_;
  mutable Mutex mutex_;
  std::vector<Mapping> mappings_ GUARDED_BY(mutex_);  // by slot number
  std::vector<uint32_t> free_ GUARDED_BY(mutex_);
  uint32_t last_generation_ GUARDED_BY(mutex_) = 0;
  // Generations during whose mapping a new worker was lost.
  std::set<uint32_t> suspects_ GUARDED_BY(mutex_);
  uint64_t last_request_ GUARDED_BY(mutex_) = 0;
  std::map<memory::MemoryIdentity, uint64_t> gpu_mappings_ GUARDED_BY(mutex_);  // counts; never 0
  std::atomic<uint64_t> gpu_bytes_ = 0;
  std::atomic<uint64_t> pid_conflicts_ = 0;
};

}  // namespace gantry::worker
