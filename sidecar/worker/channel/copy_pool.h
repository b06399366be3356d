// The copy workers as the transports see them: post copies to a worker's ring, take completions.
// All but WakeWaiter, Replace, Rouse, worker_count, gpu_of and GpuPlace belong to the driver: the
// engine's thread, or whoever takes over while that sleeps. Implemented by WorkerPool and by a
// fake.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/mutex.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::worker {

// Where a block lies, in bytes within the two allocations.
struct BlockPlaces {
  uint64_t source = 0;
  uint64_t destination = 0;
};

// How the bytes of a GPU are moved. Host memory is copied by the worker itself.
enum class GpuMeans : uint32_t { kCopyEngine, kKernel };

// `count` blocks of `length` bytes; block i lies i * stride behind the first, or, where `places`
// are given, there. count is 1 and the strides are 0 for a plain copy.
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
  // Empty, or `count` of them, instead of offsets and strides; belongs to whoever made the segment.
  std::span<const BlockPlaces> places = {};
  bool streamed = false;  // so much is moved, into so much memory, that caches are of no use
};

struct Completion {
  uint64_t tag = 0;
  int worker = 0;
  bool ok = true;
  // When not ok: kWorkerLost, kOutOfRange, kStaleGeneration (no such mapping), kFdReadOnly,
  // kInvalidArgument (an empty segment), kDeviceError. Segments before the refused one may have
  // moved.
  ErrorCode code = ErrorCode::kInternal;
  uint64_t copy_nanoseconds = 0;           // time that the worker, or its GPU, spent copying
  GpuMeans means = GpuMeans::kCopyEngine;  // what GPU memory was copied by in the end
};

// Why memory of GPUs cannot be copied, where it could when the sidecar started.
inline Error NoGpuWorkers() {
  return {ErrorCode::kPathUnavailable, "no copy worker has a context on a GPU any more",
          "GET /v1/status says why; a worker that was short of the GPU's memory asks for it again"};
}

class CopyPool {
 public:
  virtual ~CopyPool() = default;
  virtual int worker_count() const = 0;
  // A worker that is being replaced takes no work.
  virtual bool usable(int worker) const = 0;
  // Place of the GPU that the worker's context is on, among those that the pool sees; -1: none.
  // Jobs with memory of GPUs are for those that have one.
  virtual int gpu_of(int worker) const = 0;
  // Whether kernels of the worker may follow addresses of this GPU's memory; copy engines always
  // do.
  virtual bool reaches(int worker, int gpu) const = 0;
  // Of the GPU with this UUID; -1: the pool does not see it. Thread-safe.
  virtual int GpuPlace(std::string_view uuid) const = 0;
  // Free segment slots of the worker's ring now.
  virtual size_t free_slots(int worker) const = 0;
  // Likewise for places.
  virtual size_t free_places(int worker) const = 0;
  // Posts one job: all segments or none (false: no room, or not usable). Exactly one completion
  // with this tag comes back, also when the worker dies; by then it copies no longer.
  virtual bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) = 0;
  // Takes up to completions.size() completions, of which it sets every member.
  virtual size_t Poll(std::span<Completion> completions) = 0;
  // Blocks until there may be a completion, WakeWaiter() is called, or the deadline. Whoever holds
  // `driver` is the driver: it is released for as long as the thread sleeps.
  virtual void Wait(TimePoint deadline, Mutex* driver) = 0;
  // The same, but completions do not end it: while the workers have enough to do, waking up for
  // each of their jobs only takes processor time from them.
  virtual void Nap(TimePoint deadline, Mutex* driver) = 0;
  virtual void WakeWaiter() = 0;  // thread-safe
  // Another thread drives from here to HandBack: nothing wakes the one that sleeps, it would only
  // compete for a processor. HandBack wakes it if something came that nobody has looked at since
  // LookAfresh, or if `wake`.
  virtual void TakeOver() = 0;
  virtual void HandBack(bool wake) = 0;
  // Everything is looked at from now on: wake-ups so far have served their purpose.
  virtual void LookAfresh() = 0;
  // Ends a worker that does not answer: its jobs complete with kWorkerLost when it is reaped, and
  // another takes its place. Thread-safe.
  virtual void Replace(int worker) = 0;
  // Much will be moved in a moment: this worker, if it sleeps, begins to look for jobs. A hint.
  // Thread-safe.
  virtual void Rouse(int worker) = 0;
};

}  // namespace gantry::worker
