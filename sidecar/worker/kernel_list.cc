#include "sidecar/worker/kernel_list.h"

#include <algorithm>

#include "sidecar/worker/gpu_wait.h"

namespace gantry::worker {
namespace {

constexpr size_t kSlabs = 8;
constexpr size_t kSlabBytes = KernelList::kSlabItems * sizeof(gpu::CopyItem);
constexpr size_t kBytes = kSlabs * kSlabBytes;
static_assert(kBytes % 65536 == 0, "whole pages");

}  // namespace

Result<std::unique_ptr<KernelList>> KernelList::Create(gpu::GpuContext& context) {
  RETURN_IF_ERROR(context.LoadKernels());
  std::unique_ptr<KernelList> list(new KernelList());
  ASSIGN_OR_RETURN(list->pages_, PinnedPages::Create(context, kBytes, "the lists of copy kernels"));
  list->items_ = reinterpret_cast<gpu::CopyItem*>(list->pages_->data());
  for (size_t slab = 0; slab < kSlabs; ++slab) {
    ASSIGN_OR_RETURN(std::unique_ptr<gpu::GpuEvent> event, context.NewEvent());
    list->free_again_.push_back(std::move(event));
  }
  list->slab_ = list->items_;
  return list;
}

Status KernelList::AddBlocks(std::span<const BlockPlaces> places, gpu::DeviceAddress from,
                             gpu::DeviceAddress to, uint64_t length, gpu::GpuStream& stream) {
  longest_ = std::max(longest_, length);
  while (!places.empty()) {
    const size_t some = std::min(places.size(), kSlabItems - count_);
    gpu::CopyItem* const items = slab_ + count_;
    for (size_t i = 0; i < some; ++i) {
      items[i] = {to + places[i].destination, from + places[i].source, length};
    }
    count_ += some;
    places = places.subspan(some);
    if (count_ == kSlabItems) {
      RETURN_IF_ERROR(Launch(stream));
      longest_ = length;
    }
  }
  return {};
}

void KernelList::Forget() {
  count_ = 0;
  longest_ = 0;
}

Status KernelList::Launch(gpu::GpuStream& stream) {
  if (count_ == 0) return {};
  const gpu::DeviceAddress where = pages_->on_gpu() + turn_ * kSlabBytes;
  RETURN_IF_ERROR(stream.CopyByKernel(where, static_cast<uint32_t>(count_), longest_));
  RETURN_IF_ERROR(stream.Record(*free_again_[turn_]));
  turn_ = (turn_ + 1) % kSlabs;
  slab_ = items_ + turn_ * kSlabItems;
  count_ = 0;
  longest_ = 0;
  return AwaitGpu(*free_again_[turn_]);
}

}  // namespace gantry::worker
