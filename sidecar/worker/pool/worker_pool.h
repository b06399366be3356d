// The pool of copy workers: a fixed number of processes. Each has its own ring and its own mappings
// of every allocation. When a worker dies or hangs, it is reaped and its jobs complete with
// kWorkerLost. Its successor takes jobs once it has mapped everything. The driver calls CopyPool,
// and what DriverSleep reserves for it; the rest is thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/bounded_spin.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/copy_workers.h"
#include "sidecar/worker/channel/driver_sleep.h"
#include "sidecar/worker/pool/gpu_registry.h"
#include "sidecar/worker/pool/mapping_directory.h"
#include "sidecar/worker/pool/worker_slot.h"
#include "sidecar/worker/pool/worker_supervisor.h"

namespace gantry::worker {

class WorkerPool final : public CopyPool,
                         public CopyWorkers,
                         public DriverSleep,
                         public memory::MemoryMapper {
 public:
  // Returns when every worker has reported that it is ready, or with the reason why one is not.
  static Result<std::unique_ptr<WorkerPool>> Create(WorkerPoolOptions options);
  // Kills and reaps the workers. REQUIRES that no job in flight is waited for.
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int worker_count() const override { return static_cast<int>(slots_.size()); }
  bool usable(int worker) const override;
  size_t free_slots(int worker) const override;
  size_t free_places(int worker) const override;
  int gpu_of(int worker) const override { return slots_[static_cast<size_t>(worker)]->gpu.load(); }
  bool reaches(int worker, int gpu) const override;
  int GpuPlace(std::string_view uuid) const override;
  bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) override;
  size_t Poll(std::span<Completion> completions) override;
  void Wait(TimePoint deadline, Mutex* driver) override;
  void WaitIgnoringCompletions(TimePoint deadline, Mutex* driver) override;
  void WakeWaiter() override;
  void BeginDriving() override;
  void EndDriving(bool wake) override;
  void ClearWakeRequests() override { wake_requested_ = false; }
  void Replace(int worker) override;
  void WakeWorker(int worker) override;

  Result<memory::MappingId> Map(const memory::AllocationSource& source) override;
  Status Unmap(memory::MappingId mapping) override;
  Result<std::optional<memory::ProbeMismatch>> Compare(
      std::span<const memory::MemoryProbe> probes) override;

  std::vector<WorkerStatus> workers() const;
  // Bytes of GPU memory that are mapped in the workers; each allocation counts once.
  uint64_t ipc_mapped_bytes() const { return mappings_.gpu_bytes(); }
  // Counts the workers that were replaced because the owner of GPU memory has the same PID.
  uint64_t pid_conflicts() const { return pid_conflicts_.load() + mappings_.pid_conflicts(); }
  // Returns the UUIDs of the GPUs that the workers can use, or why there are none.
  Result<std::vector<std::string>> gpus() const { return gpu_registry_.gpus(); }
  Status HasGpus() const { return gpu_registry_.HasGpus(); }
  // `gpu` is one of these UUIDs; empty when the address is unknown.
  std::string PciAddressOf(std::string_view gpu) const { return gpu_registry_.PciAddressOf(gpu); }
  // The costs of copies of this GPU, an index among gpus(); the fallback for any other. Never
  // blocks.
  GpuCosts costs_of(int gpu) const;
  // True when a worker could not get its GPU and tries again.
  bool asks_for_gpu() const;

 private:
  WorkerPool(WorkerPoolOptions options, SharedBlock doorbell,
             std::vector<std::unique_ptr<WorkerSlot>> slots);

  bool TakesJobs(int worker) const;
  size_t PollWorker(WorkerSlot& slot, std::span<Completion> completions);
  bool TakeCompletions(WorkerSlot& slot, std::span<Completion> completions, size_t* taken);
  void Distrust(WorkerSlot& slot, std::string_view why);
  Status LeavePid(int64_t pid);
  bool SomethingToPoll() const;
  void Sleep(uint32_t sequence, TimePoint deadline, Mutex* driver);
  void RequestWakeUps();
  void CancelWakeUps();

  const WorkerPoolOptions options_;
  const BoundedSpin spin_;
  const SharedBlock doorbell_block_;
  Doorbell* const doorbell_;
  const std::vector<std::unique_ptr<WorkerSlot>> slots_;
  std::atomic<bool> wake_requested_ = false;
  std::atomic<bool> waiter_sleeps_ = false;
  std::atomic<uint64_t> pid_conflicts_ = 0;
  // Used by the driver alone, down to first_to_poll_.
  enum class Sleeper { kNone, kIgnoresCompletions, kWaits } sleeper_ = Sleeper::kNone;
  size_t first_to_poll_ = 0;  // rotates, so that no worker starves

  GpuRegistry gpu_registry_;
  MappingDirectory mappings_;
  WorkerSupervisor supervisor_;  // last: its threads use everything above
};

}  // namespace gantry::worker
