// The copy thread of a worker: takes segments from its ring, checks each against the mapping
// table, copies, and completes jobs in the order in which they were submitted. Run and its ring
// belong to one thread; Stop is thread-safe.
#pragma once

#include <atomic>

#include "sidecar/worker/gpu_copier.h"
#include "sidecar/worker/mapping_table.h"
#include "sidecar/worker/worker_ring.h"

namespace gantry::worker {

class WorkerLoop {
 public:
  WorkerLoop(WorkerRingEnd* ring, MappingTable* mappings, nanoseconds spin);

  // Returns after Stop(), or with an error when the ring holds what the pool never writes.
  Status Run();
  void Stop();

 private:
  Status RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job);
  // Why the segment may not be copied. An error ends the worker: a GPU may still move its bytes.
  Result<std::optional<ErrorCode>> Copy(const CopySegment& segment);
  // Protects both sides, but for what a GPU works on already: that stays as it is until it is done.
  Status Protect(const CopySegment& segment);
  // Waits for the GPU, and lets go of all mappings.
  Status ReleaseAll();

  WorkerRingEnd* const ring_;
  MappingTable* const mappings_;
  AdaptiveSpin spin_;
  std::atomic<bool> stop_ = false;
  GpuCopier gpu_copier_;
  CopySegment protected_segment_;  // whose sides these are
  std::optional<MappedBytes> source_;
  std::optional<MappedBytes> destination_;
  // The job that is being taken from the ring.
  std::optional<TimePoint> job_start_;
  std::optional<ErrorCode> job_error_;
};

}  // namespace gantry::worker
