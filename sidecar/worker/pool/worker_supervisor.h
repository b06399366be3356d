// Keeps every slot of the pool served. One thread starts workers and reaps dead ones. Another
// awaits the greetings of all new ones and completes their starts. A start takes as long as its
// mappings. Thread-safe.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/pool/gpu_registry.h"
#include "sidecar/worker/pool/mapping_directory.h"
#include "sidecar/worker/pool/worker_slot.h"

namespace gantry::worker {

class WorkerSupervisor {
 public:
  // `changed` is called when a worker died or became usable, to wake the engine.
  WorkerSupervisor(const WorkerPoolOptions& options,
                   const std::vector<std::unique_ptr<WorkerSlot>>& slots, const UniqueFd& doorbell,
                   MappingDirectory* mappings, GpuRegistry* gpu_registry,
                   std::function<void()> changed);
  ~WorkerSupervisor();  // kills and reaps
  WorkerSupervisor(const WorkerSupervisor&) = delete;
  WorkerSupervisor& operator=(const WorkerSupervisor&) = delete;

  // Starts both threads. Returns when every worker is usable, or with the first failure.
  Status Start();
  // The engine has completed a dead worker's jobs: the slot may be started again.
  void Settled();

 private:
  // The supervising thread's state of a slot.
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
  static void Notify(const UniqueFd& event);

  // A process that was spawned and has not sent its greeting.
  struct Starting {
    WorkerSlot* slot = nullptr;
    std::shared_ptr<WorkerProcess> process;
    TimePoint deadline;
    bool without_driver = false;
  };

  // The completing thread's state of a worker that retries its GPU.
  struct Refused {
    TimePoint again = TimePoint::max();
    milliseconds pause{0};
    TimePoint patience_ends{};  // while it tries
  };

  void CompleteStarts();
  // Sleeps until one of them sends its greeting, dies or is late, and completes those starts.
  void AwaitGreetings(std::vector<Starting>* awaited);
  void CompleteStart(const Starting& start, const Result<Greeting>& greeted);
  Status SetUp(const Starting& start, const Result<Greeting>& greeted, bool tolerant);
  // Schedules another attempt for a worker that could not get its GPU. The pause is the longest one
  // when its driver is not trusted.
  void RetryGpuLater(WorkerSlot& slot, const Error& why, bool distrusts_driver = false);
  // Continues the attempt in progress, or starts the first due one. Does not wait for the driver.
  void RetryGpus();
  // The worker got its GPU, or learned why not.
  void GpuRetried(WorkerSlot& slot, const Result<bool>& opened);
  TimePoint NextGpuRetry() const;
  // True when the GPU driver made so many starts of the slot fail that the next one avoids it.
  bool DistrustsDriver(const WorkerSlot& slot) const;
  void ReportFailedStart(const WorkerSlot& slot, Error error);

  const WorkerPoolOptions& options_;
  const std::vector<std::unique_ptr<WorkerSlot>>& slots_;
  const UniqueFd& doorbell_;
  MappingDirectory& mappings_;
  GpuRegistry& gpu_registry_;
  const std::function<void()> changed_;
  UniqueFd event_;   // wakes the supervising thread
  UniqueFd starts_;  // wakes the completing thread
  std::atomic<bool> stop_ = false;
  std::vector<Care> care_;        // supervising thread
  std::vector<Refused> refused_;  // completing thread, by slot
  int retrying_ = -1;             // completing thread: the slot that is trying; -1: none

  Mutex mutex_;
  Condition condition_;
  std::vector<Starting> starting_ GUARDED_BY(mutex_);  // for the completing thread
  std::vector<int> failed_starts_ GUARDED_BY(mutex_);  // consecutive, by slot
  Status first_failure_ GUARDED_BY(mutex_);

  std::jthread completing_thread_;
  std::jthread supervising_thread_;
};

}  // namespace gantry::worker
