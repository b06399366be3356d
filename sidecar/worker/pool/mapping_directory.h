// Which allocations the workers have mapped, and the exchange with them about it. A mapping is in
// all usable workers (of GPU memory: in all with a GPU) or in none; a new worker gets all of them
// before it is usable. Thread-safe: one request at a time, as its lock is held for as long as the
// workers take.
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
#include "sidecar/worker/pool/gpu_homes.h"
#include "sidecar/worker/pool/worker_slot.h"

namespace gantry::worker {

class MappingDirectory {
 public:
  MappingDirectory(const std::vector<std::unique_ptr<WorkerSlot>>& slots, Patience patience)
      : slots_(slots), patience_(patience) {}

  // `in_turn`: in one worker after another.
  Result<memory::MappingId> Map(const memory::AllocationSource& source, bool in_turn)
      EXCLUDES(mutex_);
  Status Unmap(memory::MappingId id) EXCLUDES(mutex_);
  // Of GPU memory that is mapped, each allocation counted once. Does not wait for the workers.
  uint64_t gpu_bytes() const { return gpu_bytes_.load(); }

  // Workers that Restore refused for having the PID of an owner of GPU memory.
  uint64_t pid_conflicts() const { return pid_conflicts_.load(); }

  // As MemoryMapper::Compare.
  Result<std::optional<memory::ProbeMismatch>> Compare(std::span<const memory::MemoryProbe> probes)
      EXCLUDES(mutex_);

  // Asks a usable worker without a GPU to try once more, and does not wait for its driver: false
  // while it tries, to be called again. Maps all GPU memory in one that then has its GPU, and has
  // the sidecar's own memory pinned for it, before it is given jobs of either. kWorkerLost: it was
  // lost or has the PID of an owner, and was ended; any other error: why it still has none.
  Result<bool> OpenGpu(WorkerSlot& slot, WorkerProcess& process, GpuHomes& homes) EXCLUDES(mutex_);

  // Maps everything in a worker that has just started, and makes it usable. A mapping that the
  // worker refuses fails the start, unless `tolerant`: then it is left out, visibly. As a job of
  // GPU memory goes to any worker with a GPU, one that cannot have all of that has none: `has_gpu`
  // says why, and is not set otherwise.
  Status Restore(WorkerSlot& slot, WorkerProcess& process, bool tolerant, Status* has_gpu)
      EXCLUDES(mutex_);

 private:
  struct Mapping {
    uint32_t generation = 0;  // 0: the slot is free
    memory::AllocationSource source;
    memory::MemoryIdentity identity;  // of GPU memory
  };
  // A usable worker and what it answered; holds the process, as its reply only points to it.
  struct Participants {
    std::vector<WorkerSlot*> slots;
    std::vector<std::shared_ptr<WorkerProcess>> processes;
    std::vector<WorkerReply> replies;
  };

  // GPU memory is only for those that have a GPU.
  Participants UsableWorkers(wire::MemoryKind kind) const REQUIRES(mutex_);
  // Ends the workers that were lost in the exchange, and returns the first error of the others.
  Status Ask(Participants* participants, WorkerRequest request, int fd, bool in_turn = false)
      REQUIRES(mutex_);
  // How many of the first ones are of one kind of memory.
  size_t OfOneKind(std::span<const memory::MemoryProbe> probes) const EXCLUDES(mutex_);
  wire::MemoryKind KindOf(memory::MappingId id) const REQUIRES(mutex_);
  // Of one kind, and as many as one list takes.
  Result<std::optional<memory::ProbeMismatch>> CompareSome(
      std::span<const memory::MemoryProbe> probes) EXCLUDES(mutex_);
  // kWorkerLost: it is of no use any more; any other error: why it is without that one.
  Status MapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  Status UnmapInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  // Takes back the GPU memory among the mappings before this number, all of which the worker has.
  Status UnmapGpuMemory(WorkerSlot& slot, WorkerProcess& process, uint32_t end) REQUIRES(mutex_);
  // The worker has it since before it had a GPU; nothing copies to or from it there yet.
  Status PinInOne(WorkerSlot& slot, WorkerProcess& process, uint32_t number) REQUIRES(mutex_);
  // All that there is in a worker that has just got its GPU, or none.
  Status MapGpuMemory(WorkerSlot& slot, WorkerProcess& process) REQUIRES(mutex_);
  // kWorkerLost, counted: the worker has the PID of an owner of GPU memory.
  Status LeavesRoomForPids(const WorkerProcess& process) REQUIRES(mutex_);
  WorkerRequest MapRequest(memory::MappingId id, const memory::AllocationSource& source) const;
  void RollBack(const Participants& participants, memory::MappingId id) REQUIRES(mutex_);
  // The same GPU memory may be mapped for reading and, by others, for writing.
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
  std::set<uint32_t> suspects_ GUARDED_BY(mutex_);  // generations over which a new worker was lost
  uint64_t last_request_ GUARDED_BY(mutex_) = 0;
  std::map<memory::MemoryIdentity, uint64_t> gpu_mappings_ GUARDED_BY(mutex_);  // never 0
  std::atomic<uint64_t> gpu_bytes_ = 0;
  std::atomic<uint64_t> pid_conflicts_ = 0;
};

}  // namespace gantry::worker
