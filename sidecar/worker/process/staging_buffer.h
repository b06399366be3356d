// Host memory of its own through which a copy worker moves blocks between a GPU and the host's
// memory: the driver copies between the GPU and a slice, the processor between the slice and where
// the bytes belong. So the GPU reaches nobody's pages but the worker's, which are pinned once. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/worker/process/pinned_pages.h"

namespace gantry::worker {

class StagingBuffer {
 public:
  static constexpr uint64_t kSliceBytes = 1 << 20;
  static constexpr uint64_t kSlices = 16;

  static Result<std::unique_ptr<StagingBuffer>> Create(gpu::GpuContext& context);
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  // What is left of the open slice; 0: close it, and open the next.
  uint64_t room() const { return kSliceBytes - used_; }
  // Up to room() bytes, as the GPU sees them: filled with the host's, or to be brought there when
  // the slice is retired.
  gpu::DeviceAddress Fill(const std::byte* from, uint64_t bytes);
  gpu::DeviceAddress Expect(std::byte* to, uint64_t bytes, bool streamed);
  // The GPU was given all that the open slice is for. A number for Retire; the next slice is
  // opened, which may wait for the GPU.
  Result<uint64_t> Close(gpu::GpuStream& stream);
  // What the open slice is for is not moved.
  void Forget();
  // Waits for the GPU, and brings the bytes of the slices up to this number to where they belong.
  Status Retire(uint64_t number);

 private:
  struct Arrival {
    std::byte* to = nullptr;
    uint64_t offset = 0;  // in the slice
    uint64_t bytes = 0;
    bool streamed = false;  // past the caches
  };
  struct Slice {
    std::unique_ptr<gpu::GpuEvent> mark;
    std::vector<Arrival> arrivals;
  };

  StagingBuffer() = default;
  std::byte* open() const { return pages_->data() + number_ % kSlices * kSliceBytes; }
  gpu::DeviceAddress Take(uint64_t bytes);

  std::unique_ptr<PinnedPages> pages_;  // all slices
  std::vector<Slice> slices_;
  uint64_t number_ = 1;   // of the open slice
  uint64_t used_ = 0;     // of it
  uint64_t retired_ = 0;  // the last one
};

}  // namespace gantry::worker
