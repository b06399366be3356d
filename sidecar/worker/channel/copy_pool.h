// The rings of the copy workers as their scheduler sees them: posts copies, takes completions. Used
// by the driver: the engine's thread, or the thread that takes over while the engine's sleeps.
// Implemented by WorkerPool and by a fake.
#pragma once

#include <cstdint>
#include <span>

#include "lib/base/error.h"
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
  // False while the worker is being replaced.
  virtual bool usable(int worker) const = 0;
  // Segment slots of the worker's ring that are free now.
  virtual size_t free_slots(int worker) const = 0;
  // BlockPlaces slots of the worker's ring that are free now.
  virtual size_t free_places(int worker) const = 0;
  // Posts one job: all segments or none (false: no room, or not usable). Exactly one completion
  // with `tag` follows, also when the worker dies. It copies nothing after that.
  virtual bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) = 0;
  // Takes up to completions.size() completions and sets every member of each.
  virtual size_t Poll(std::span<Completion> completions) = 0;
};

}  // namespace gantry::worker
