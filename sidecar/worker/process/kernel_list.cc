#include "sidecar/worker/process/kernel_list.h"

#include <algorithm>
#include <thread>

#include "sidecar/worker/process/gpu_wait.h"

namespace gantry::worker {
namespace {

constexpr size_t kSlabs = 8;
constexpr size_t kSlabBytes = KernelList::kSlabItems * sizeof(gpu::CopyItem);
constexpr size_t kListBytes = kSlabs * kSlabBytes;
static_assert(kListBytes % 65536 == 0, "whole pages");
constexpr milliseconds kFirstWait{100};
constexpr uint64_t kTileBytes = gpu::copy_kernel::kShortTileBytes;  // parts are whole ones

}  // namespace

Result<std::unique_ptr<KernelList>> KernelList::Create(gpu::GpuContext& context,
                                                       gpu::GpuStream& stream) {
  RETURN_IF_ERROR(context.LoadKernels());
  std::unique_ptr<KernelList> list(new KernelList());
  ASSIGN_OR_RETURN(list->pages_,
                   PinnedPages::Create(context, kListBytes, "the lists of copy kernels"));
  list->items_ = reinterpret_cast<gpu::CopyItem*>(list->pages_->data());
  for (size_t slab = 0; slab < kSlabs; ++slab) {
    ASSIGN_OR_RETURN(std::unique_ptr<gpu::GpuEvent> event, context.NewEvent());
    list->free_again_.push_back(std::move(event));
  }
  list->slab_ = list->items_;
  if (!list->RunFirst(stream)) list->Forget();  // the first job finds out why
  return list;
}

// Within the pages of the lists. Where others have the GPU it may be done much later, which nobody
// waits for: its slab is written again when it is.
Status KernelList::RunFirst(gpu::GpuStream& stream) {
  const gpu::DeviceAddress last = pages_->on_gpu() + (kListBytes - sizeof(gpu::CopyItem));
  const gpu::DeviceAddress before = pages_->on_gpu() + (kListBytes - 2 * sizeof(gpu::CopyItem));
  RETURN_IF_ERROR(Add({last, before, sizeof(gpu::CopyItem)}, stream));
  gpu::GpuEvent& done = *free_again_[turn_];
  RETURN_IF_ERROR(Launch(stream));
  const TimePoint until = Clock::now() + kFirstWait;
  for (bool reached = false; !reached && Clock::now() < until;) {
    ASSIGN_OR_RETURN(reached, done.IsReached());
    std::this_thread::yield();
  }
  return {};
}

Status KernelList::Add(const gpu::CopyItem& item, gpu::GpuStream& stream) {
  if (item.bytes <= kItemBytesMax) return AddPart(item, stream);
  const uint64_t parts = (item.bytes - 1) / kItemBytesMax + 1;
  const uint64_t equal = (item.bytes - 1) / parts + 1;
  const uint64_t bytes = (equal + kTileBytes - 1) / kTileBytes * kTileBytes;
  for (uint64_t at = 0; at < item.bytes; at += bytes) {
    RETURN_IF_ERROR(
        AddPart({item.to + at, item.from + at, std::min(bytes, item.bytes - at)}, stream));
  }
  return {};
}

Status KernelList::AddBlocks(std::span<const BlockPlaces> places, gpu::DeviceAddress from,
                             gpu::DeviceAddress to, uint64_t length, gpu::GpuStream& stream) {
  if (length > kItemBytesMax) {
    for (const BlockPlaces& place : places) {
      RETURN_IF_ERROR(Add({to + place.destination, from + place.source, length}, stream));
    }
    return {};
  }
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
