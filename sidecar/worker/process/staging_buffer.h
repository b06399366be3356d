// A copy worker's own pinned memory for moving blocks between a GPU and host memory. The driver
// copies between the GPU and a slice; the CPU copies between the slice and the final place. So the
// GPU accesses only the worker's pages, which are pinned once. Used by one thread.
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

  // Bytes left in the open slice; at 0, call Close.
  uint64_t room() const { return kSliceBytes - used_; }
  // Both return the GPU's address of up to room() bytes. Fill copies host bytes in. Expect records
  // where to copy the bytes when the slice is retired.
  gpu::DeviceAddress Fill(const std::byte* from, uint64_t bytes);
  gpu::DeviceAddress Expect(std::byte* to, uint64_t bytes, bool streamed);
  // Call when all GPU copies of the open slice are queued. Returns the number for Retire. Opens the
  // next slice, which may wait for the GPU.
  Result<uint64_t> Close(gpu::GpuStream& stream);
  // Discards the open slice's copies.
  void Forget();
  // Waits for the GPU, and copies the bytes of the slices up to this number to their places.
  Status Retire(uint64_t number);

 private:
  struct Arrival {
    std::byte* to = nullptr;
    uint64_t offset = 0;  // within the slice
    uint64_t bytes = 0;
    bool streamed = false;  // bypasses the caches
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
  uint64_t number_ = 1;   // the open slice's
  uint64_t used_ = 0;     // bytes used of it
  uint64_t retired_ = 0;  // number of the last retired slice
};

}  // namespace gantry::worker
