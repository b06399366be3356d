// The copy thread of a worker. Takes segments from its ring, checks them against the mapping table,
// and copies. A GPU copies while the thread takes the next segment. Jobs complete in the order of
// submission. Run and the ring belong to one thread; Stop is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>

#include "sidecar/worker/channel/worker_ring.h"
#include "sidecar/worker/process/gpu_copier.h"
#include "sidecar/worker/process/gpu_holds.h"
#include "sidecar/worker/process/gpu_keep_alive.h"
#include "sidecar/worker/process/gpu_wait.h"
#include "sidecar/worker/process/mapping_table.h"

namespace gantry::worker {

class WorkerLoop {
 public:
  WorkerLoop(WorkerRingEnd* ring, MappingTable* mappings, nanoseconds spin);

  // Prepares what the first job with GPU memory would otherwise wait for. Call before Run.
  Status UseGpu(const memory::GpuDevices& gpus);
  // Returns after Stop(), or with an error when the ring has content that the pool never writes.
  Status Run();
  void Stop();
  // Keeps its GPU awake; null: disabled. Call before Run or after it.
  GpuKeepAlive* keep_alive() const { return keep_alive_.get(); }

 private:
  // A complete job. It completes when earlier jobs have and its GPU is done.
  struct Pending {
    Completion completion;
    uint64_t number = 0;
    TimePoint start;
    std::optional<GpuJob> gpu;
  };
  Status RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job);
  // Returns why the segment may not be copied. An error ends the worker: a GPU may still move
  // bytes.
  Result<std::optional<ErrorCode>> Copy(const CopySegment& segment);
  // Returns the mapping. The guard protects it, unless a GPU job holds it anyway.
  std::optional<MappedBytes> FindMapping(size_t guard, memory::MappingId id);
  Result<std::optional<ErrorCode>> CopyOnGpu(const CopySegment& segment);
  // Call after an error of a job's copies. Waits until nothing moves; returns the job's error code.
  Result<ErrorCode> GiveUp(const Error& error);
  Status EndJob(uint64_t tag);
  // Completes the jobs that are done.
  Status CompletePending();
  Result<bool> CompleteIfDone(Pending* job);  // false: its GPU is still working
  Status Complete(const Pending& job);
  // Waits for the GPU and completes all jobs.
  Status Drain();
  void ReleaseHostMemory();
  void KeepGpuAwake();
  void WakeGpuAfterPause();
  void SendKeepAlive();
  Status ReadALittle();

  WorkerRingEnd* const ring_;
  MappingTable* const mappings_;
  const BoundedSpin spin_;
  const WorkerRingEnd::Meanwhile meanwhile_;
  std::unique_ptr<GpuKeepAlive> keep_alive_;  // null: its GPU is not kept awake
  std::optional<GpuJob> keep_alive_job_;      // the last small read, until it is done
  TimePoint next_keep_alive_;
  std::atomic<bool> stop_ = false;
  GpuCopier gpu_copier_;
  GpuHolds gpu_holds_;
  GpuPatience patience_;
  std::deque<Pending> pending_;
  TimePoint gpu_done_;  // when the last GPU job was seen to be done
  // The job that is being taken from the ring.
  uint64_t job_ = 0;
  std::optional<TimePoint> job_start_;
  std::optional<ErrorCode> job_error_;
};

}  // namespace gantry::worker
