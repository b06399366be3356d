// The item lists that copy kernels read: slabs of pinned host memory. A slab is reused once the
// kernel that reads it is done. Used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lib/gpu/shared/copy_kernel.h"
#include "lib/gpu/shared/gpu_driver.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/process/pinned_pages.h"

namespace gantry::worker {

class KernelList {
 public:
  static constexpr size_t kSlabItems = 16384;

  // kPathUnavailable where the driver has no kernels. Runs a first kernel on the stream. The
  // driver's deferred initialisation takes a millisecond, which would look like a busy GPU.
  static Result<std::unique_ptr<KernelList>> Create(gpu::GpuContext& context,
                                                    gpu::GpuStream& stream);
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // Longer items are cut into equal parts. A launch divides its work by the longest item, so a few
  // long items would slow it down.
  static constexpr uint64_t kItemBytesMax = gpu::copy_kernel::kShortItemBytes;

  // Adds an item to the current slab. Launches a full slab on the stream.
  Status Add(const gpu::CopyItem& item, gpu::GpuStream& stream);
  // Adds blocks of `length` bytes, from `from` to `to` at these places. Launches full slabs.
  Status AddBlocks(std::span<const BlockPlaces> places, gpu::DeviceAddress from,
                   gpu::DeviceAddress to, uint64_t length, gpu::GpuStream& stream);
  // Launches the items added since the last launch, and waits until the next slab is free.
  Status Launch(gpu::GpuStream& stream);
  // Drops the items that were not launched. REQUIRES that no kernel is running.
  void Forget();

 private:
  KernelList() = default;
  Status RunFirst(gpu::GpuStream& stream);
  Status AddPart(const gpu::CopyItem& part, gpu::GpuStream& stream) {
    slab_[count_++] = part;
    if (part.bytes > longest_) longest_ = part.bytes;
    return count_ == kSlabItems ? Launch(stream) : Status();
  }

  std::unique_ptr<PinnedPages> pages_;
  gpu::CopyItem* items_ = nullptr;                          // all slabs, within pages_
  std::vector<std::unique_ptr<gpu::GpuEvent>> free_again_;  // per slab
  size_t turn_ = 0;                                         // the current slab
  gpu::CopyItem* slab_ = nullptr;
  size_t count_ = 0;
  uint64_t longest_ = 0;
};

}  // namespace gantry::worker
