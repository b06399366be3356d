// Keeps every slot of the pool served: one thread starts workers and reaps dead ones, another
// completes the start of a new one, which takes as long as its mappings do. Thread-safe.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/gpu_homes.h"
#include "sidecar/worker/mapping_directory.h"
#include "sidecar/worker/worker_slot.h"

namespace gantry::worker {

class WorkerSupervisor {
 public:
  // `changed` is called when a worker died or became usable; it wakes the engine.
  WorkerSupervisor(const WorkerPoolOptions& options,
                   const std::vector<std::unique_ptr<WorkerSlot>>& slots, const UniqueFd& doorbell,
                   MappingDirectory* mappings, GpuHomes* homes, std::function<void()> changed);
  ~WorkerSupervisor();  // kills and reaps
  WorkerSupervisor(const WorkerSupervisor&) = delete;
  WorkerSupervisor& operator=(const WorkerSupervisor&) = delete;

  // Starts both threads, and returns when every worker is usable, or with the first that failed.
  Status Start();
  // The engine has settled a dead worker's jobs: it may be started again.
  void Settled();

 private:
  // What the supervising thread knows about a slot.
  struct Care {
    TimePoint start_at;
    TimePoint started;
    milliseconds backoff{0};
  };

  void Supervise();
  void AwaitEvent(TimePoint until);
  void Reap(WorkerSlot& slot, WorkerProcess& process, Care* care);
  void StartDue();
  void EndAll();
  TimePoint NextStart() const;
  void Notify() const;

  void CompleteStarts();
  void CompleteStart(WorkerSlot& slot);
  Status SetUp(WorkerSlot& slot, WorkerProcess& process, bool tolerant);
  void ReportFailedStart(const WorkerSlot& slot, Error error);

  const WorkerPoolOptions& options_;
  const std::vector<std::unique_ptr<WorkerSlot>>& slots_;
  const UniqueFd& doorbell_;
  MappingDirectory& mappings_;
  GpuHomes& homes_;
  const std::function<void()> changed_;
  UniqueFd event_;
  std::atomic<bool> stop_ = false;
  std::vector<Care> care_;  // supervising thread

  Mutex mutex_;
  Condition condition_;
  std::vector<WorkerSlot*> starting_ GUARDED_BY(mutex_);  // spawned, not yet usable
  std::vector<int> failed_starts_ GUARDED_BY(mutex_);     // in a row, by slot
  Status first_failure_ GUARDED_BY(mutex_);

  std::thread completing_thread_;
  std::thread supervising_thread_;
};

}  // namespace gantry::worker
