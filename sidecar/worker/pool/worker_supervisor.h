// Keeps every slot of the pool served: one thread starts workers and reaps dead ones, another
// awaits the greetings of new ones, all at once, and completes the start of each, which takes as
// long as its mappings do. Thread-safe.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/pool/gpu_homes.h"
#include "sidecar/worker/pool/mapping_directory.h"
#include "sidecar/worker/pool/worker_slot.h"

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
  static void Notify(const UniqueFd& event);

  // A process that was spawned and has not greeted.
  struct Starting {
    WorkerSlot* slot = nullptr;
    std::shared_ptr<WorkerProcess> process;
    TimePoint deadline;
    bool without_driver = false;
  };

  // What the completing thread knows of a worker that asks for its GPU again.
  struct Refused {
    TimePoint again = TimePoint::max();
    milliseconds pause{0};
    TimePoint patience_ends{};  // while it asks
  };

  void CompleteStarts();
  // Sleeps until one of them greets, dies or is late, and completes the starts of those.
  void AwaitGreetings(std::vector<Starting>* awaited);
  void CompleteStart(const Starting& start, const Result<Greeting>& greeted);
  Status SetUp(const Starting& start, const Result<Greeting>& greeted, bool tolerant);
  // The worker could not have its GPU: it is asked for again later, after the longest pause when
  // its driver is not to be trusted.
  void AskAgainLater(WorkerSlot& slot, const Error& why, bool distrusts_driver = false);
  // The one that is at it, or the first that is due, asks again. Does not wait for its driver.
  void AskForGpus();
  // It has its GPU, or was told why not.
  void Asked(WorkerSlot& slot, const Result<bool>& opened);
  TimePoint NextAsking() const;
  // Whether the GPU's driver has cost the slot so many starts that the next does without.
  bool DistrustsDriver(const WorkerSlot& slot) const;
  void ReportFailedStart(const WorkerSlot& slot, Error error);

  const WorkerPoolOptions& options_;
  const std::vector<std::unique_ptr<WorkerSlot>>& slots_;
  const UniqueFd& doorbell_;
  MappingDirectory& mappings_;
  GpuHomes& homes_;
  const std::function<void()> changed_;
  UniqueFd event_;   // of the supervising thread
  UniqueFd starts_;  // likewise of the completing one
  std::atomic<bool> stop_ = false;
  std::vector<Care> care_;        // supervising thread
  std::vector<Refused> refused_;  // completing thread, by slot
  int asking_ = -1;               // likewise: the slot that is at it; -1: none

  Mutex mutex_;
  Condition condition_;
  std::vector<Starting> starting_ GUARDED_BY(mutex_);  // for the completing thread
  std::vector<int> failed_starts_ GUARDED_BY(mutex_);  // in a row, by slot
  Status first_failure_ GUARDED_BY(mutex_);

  std::jthread completing_thread_;
  std::jthread supervising_thread_;
};

}  // namespace gantry::worker
