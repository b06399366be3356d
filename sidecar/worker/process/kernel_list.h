// The lists of items that copy kernels read: host memory that the GPU reaches, in slabs, each of
// which is written again once the kernel that reads it is done. One thread.
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

  // path_unavailable where the driver has no kernels. A first one is run on the stream: a driver
  // takes a millisecond for what it puts off until then, which looks like a GPU that is busy.
  static Result<std::unique_ptr<KernelList>> Create(gpu::GpuContext& context,
                                                    gpu::GpuStream& stream);
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  // Longer items are cut into equal parts: a launch shares out its items by the longest, and a few
  // that are longer than the others, as blocks that lie side by side, would slow all of it down.
  static constexpr uint64_t kItemBytesMax = gpu::copy_kernel::kShortItemBytes;

  // Adds to the slab that is being written; a full one is launched on the stream.
  Status Add(const gpu::CopyItem& item, gpu::GpuStream& stream);
  // Blocks of `length` bytes, from `from` to `to` at the places; full slabs are launched.
  Status AddBlocks(std::span<const BlockPlaces> places, gpu::DeviceAddress from,
                   gpu::DeviceAddress to, uint64_t length, gpu::GpuStream& stream);
  // Launches what was added since the last launch, and waits for the slab that comes next.
  Status Launch(gpu::GpuStream& stream);
  // What was not launched is not copied. REQUIRES that no kernel is under way.
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
  gpu::CopyItem* items_ = nullptr;                          // all slabs, in the pages
  std::vector<std::unique_ptr<gpu::GpuEvent>> free_again_;  // of each slab
  size_t turn_ = 0;                                         // the slab that is being written
  gpu::CopyItem* slab_ = nullptr;
  size_t count_ = 0;
  uint64_t longest_ = 0;
};

}  // namespace gantry::worker
