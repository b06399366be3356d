// The copy workers as transports see them: post copies to a worker's ring, take completions. Any
// thread may call WakeWaiter, Replace, Rouse, worker_count, gpu_of and GpuPlace. The driver alone
// calls the rest: the engine's thread, or the thread that takes over while the engine's sleeps.
// Implemented by WorkerPool and by a fake.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mutex.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::worker {

// The place of one block, in bytes within the two allocations.
struct BlockPlaces {
  uint64_t source = 0;
  uint64_t destination = 0;
};

// How GPU memory is copied. The worker itself copies host memory.
enum class GpuMeans : uint32_t { kCopyEngine, kKernel };

// `count` blocks of `length` bytes. Block i lies i * stride after the first or, if `places` is set,
// at places[i]. A plain copy has count 1 and strides 0.
struct CopySegment {
  memory::MappingId source;
  memory::MappingId destination;
  uint64_t source_offset = 0;  // bytes within the allocation
  uint64_t destination_offset = 0;
  uint64_t length = 0;
  uint64_t source_stride = 0;
  uint64_t destination_stride = 0;
  uint32_t count = 1;
  GpuMeans means = GpuMeans::kCopyEngine;
  // Empty, or `count` places that replace offsets and strides. The creator of the segment owns
  // them.
  std::span<const BlockPlaces> places = {};
  bool streamed = false;  // the transfer is so large that copies should bypass the caches
};

struct Completion {
  uint64_t tag = 0;
  int worker = 0;
  bool ok = true;
  // Set when not ok: kWorkerLost, kOutOfRange, kStaleGeneration (no such mapping), kFdReadOnly,
  // kInvalidArgument (an empty segment), kDeviceError. Segments before the refused one may have
  // moved.
  ErrorCode code = ErrorCode::kInternal;
  uint64_t copy_nanoseconds = 0;           // the worker's or its GPU's copy time
  GpuMeans means = GpuMeans::kCopyEngine;  // the means actually used for GPU memory
};

// The error when no worker can copy GPU memory any more, although one could at the start.
inline Error NoGpuWorkers() {
  return {ErrorCode::kPathUnavailable, "no copy worker has a context on a GPU any more",
          "GET /v1/status says why; a worker that was short of the GPU's memory asks for it again"};
}

class CopyPool {
 public:
  virtual ~CopyPool() = default;
  virtual int worker_count() const = 0;
  // False while the worker is being replaced.
  virtual bool usable(int worker) const = 0;
  // Index of the GPU that the worker's context is on, among the pool's GPUs; -1: none. Only workers
  // with a GPU take jobs with GPU memory.
  virtual int gpu_of(int worker) const = 0;
  // Whether the worker's kernels may access this GPU's memory; copy engines always can.
  virtual bool reaches(int worker, int gpu) const = 0;
  // Index of the GPU with this UUID; -1: the pool does not see it. Thread-safe.
  virtual int GpuPlace(std::string_view uuid) const = 0;
  // Segment slots of the worker's ring that are free now.
  virtual size_t free_slots(int worker) const = 0;
  // BlockPlaces slots of the worker's ring that are free now.
  virtual size_t free_places(int worker) const = 0;
  // Posts one job: all segments or none (false: no room, or not usable). Exactly one completion
  // with `tag` follows, also when the worker dies. It copies nothing after that.
  virtual bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) = 0;
  // Takes up to completions.size() completions and sets every member of each.
  virtual size_t Poll(std::span<Completion> completions) = 0;
  // Blocks until a completion may be there, WakeWaiter() is called, or the deadline passes. The
  // caller holds `driver`; it is released while the thread sleeps.
  virtual void Wait(TimePoint deadline, Mutex* driver) = 0;
  // Like Wait, but completions do not end it. Waking up for each job would take processor time from
  // busy workers.
  virtual void Nap(TimePoint deadline, Mutex* driver) = 0;
  virtual void WakeWaiter() = 0;  // thread-safe
  // Another thread drives between TakeOver and HandBack. The sleeping thread is not woken
  // meanwhile, so that it does not compete for a processor. HandBack wakes it if `wake`, or if
  // something has arrived since the last LookAfresh.
  virtual void TakeOver() = 0;
  virtual void HandBack(bool wake) = 0;
  // Clears pending wake-up requests: the driver examines everything after this call.
  virtual void LookAfresh() = 0;
  // Kills a worker that does not respond. Its jobs complete with kWorkerLost when it is reaped, and
  // a new worker replaces it. Thread-safe.
  virtual void Replace(int worker) = 0;
  // Hint: wakes this worker if it sleeps, before much work is posted. Thread-safe.
  virtual void Rouse(int worker) = 0;
};

}  // namespace gantry::worker
