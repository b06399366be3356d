// The copy thread of a worker: takes segments from its ring, checks each against the mapping
// table, copies, or has the GPU copy while it takes the next, and completes jobs in the order in
// which they were submitted. Run and its ring belong to one thread; Stop is thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>

#include "sidecar/worker/channel/worker_ring.h"
#include "sidecar/worker/process/gpu_copier.h"
#include "sidecar/worker/process/gpu_holds.h"
#include "sidecar/worker/process/gpu_nudges.h"
#include "sidecar/worker/process/gpu_wait.h"
#include "sidecar/worker/process/mapping_table.h"

namespace gantry::worker {

class WorkerLoop {
 public:
  WorkerLoop(WorkerRingEnd* ring, MappingTable* mappings, nanoseconds spin);

  // Gets ready what the first job with memory of a GPU would wait for. Before Run.
  Status UseGpu(const memory::GpuDevices& gpus);
  // Returns after Stop(), or with an error when the ring holds what the pool never writes.
  Status Run();
  void Stop();
  // What keeps its GPU awake; null: nothing does. Before Run, and after it.
  GpuNudges* nudges() const { return nudges_.get(); }

 private:
  // A job that was taken whole, and is completed when those before it are and its GPU is done.
  struct Pending {
    Completion completion;
    uint64_t number = 0;
    TimePoint start;
    std::optional<GpuJob> gpu;
  };
  Status RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job);
  // Why the segment may not be copied. An error ends the worker: a GPU may still move its bytes.
  Result<std::optional<ErrorCode>> Copy(const CopySegment& segment);
  // The mapping, which stays for as long as the guard protects it, or is held for a GPU anyway.
  std::optional<MappedBytes> Look(size_t guard, memory::MappingId id);
  Result<std::optional<ErrorCode>> CopyOnGpu(const CopySegment& segment);
  // After an error of a job's copies: what the job fails with, once nothing moves any more.
  Result<ErrorCode> GiveUp(const Error& error);
  Status EndJob(uint64_t tag);
  // Completes what is done by now.
  Status CompletePending();
  Result<bool> CompleteIfDone(Pending* job);  // false: its GPU is at it still
  Status Complete(const Pending& job);
  // Waits for the GPU, and completes all.
  Status Drain();
  void ReleaseHostMemory();
  void KeepGpuAwake();
  void WakeGpuAfterPause();
  void Nudge();
  Status ReadALittle();

  WorkerRingEnd* const ring_;
  MappingTable* const mappings_;
  AdaptiveSpin spin_;
  const WorkerRingEnd::Meanwhile meanwhile_;
  std::unique_ptr<GpuNudges> nudges_;  // null: nothing keeps its GPU awake
  std::optional<GpuJob> nudge_;        // the last one, until it was seen to be done
  TimePoint nudge_again_;
  std::atomic<bool> stop_ = false;
  GpuCopier gpu_copier_;
  GpuHolds gpu_holds_;
  GpuPatience patience_;
  std::deque<Pending> pending_;
  TimePoint gpu_done_;  // when the last job of a GPU was seen to be done
  // The job that is being taken from the ring.
  uint64_t job_ = 0;
  std::optional<TimePoint> job_start_;
  std::optional<ErrorCode> job_error_;
};

}  // namespace gantry::worker
