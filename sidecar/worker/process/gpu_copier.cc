#include "sidecar/worker/process/gpu_copier.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/worker/process/gpu_wait.h"
#include "sidecar/worker/process/row_copies.h"

namespace gantry::worker {
namespace {

// The GPU begins with a batch when the driver has taken it whole, at half a microsecond an item:
// the first ones after a pause are short.
constexpr size_t kFirstBatch = 32;
constexpr size_t kBatchMax = 1024;

}  // namespace

Status GpuCopier::Prepare(const std::shared_ptr<gpu::GpuContext>& context) {
  for (auto& stream : streams_) {
    auto made = context->NewStream();
    if (!made) {
      streams_ = {};  // they keep the context
      return Fail(made.error());
    }
    stream = *std::move(made);
  }
  context_ = context;
  static_cast<void>(HasKernels());
  return {};
}

Status GpuCopier::Add(const CopySegment& segment, const MappedBytes& source,
                      const MappedBytes& destination) {
  const bool with_host = source.gpu == nullptr || destination.gpu == nullptr;
  RETURN_IF_ERROR(Begin((source.gpu != nullptr ? source : destination).gpu->home()));
  if (with_host) return AddWithHost(segment, source, destination);
  const bool reached = source.gpu->is_reached() && destination.gpu->is_reached();
  const bool by_kernel = segment.means == GpuMeans::kKernel && reached && HasKernels();
  if (by_kernel) job_means_ = GpuMeans::kKernel;
  const gpu::DeviceAddress from = source.gpu->base();
  const gpu::DeviceAddress to = destination.gpu->base();
  if (by_kernel && !segment.places.empty()) {
    return kernels_->AddBlocks(segment.places, from, to, segment.length, stream());
  }
  for (const BlockPlaces& place : segment.places) {
    RETURN_IF_ERROR(
        AddItem({to + place.destination, from + place.source, segment.length}, by_kernel));
  }
  if (!segment.places.empty()) return {};
  if (!by_kernel && AddRows(segment, from, to)) return {};
  gpu::CopyItem item{to + segment.destination_offset, from + segment.source_offset, segment.length};
  for (uint32_t block = 0; block < segment.count; ++block) {
    RETURN_IF_ERROR(AddItem(item, by_kernel));
    item.from = item.from + segment.source_stride;
    item.to = item.to + segment.destination_stride;
  }
  return {};
}

Status GpuCopier::Add(const gpu::CopyItem& item) {
  has_job_ = true;
  return AddItem(item, /*by_kernel=*/false);
}

bool GpuCopier::AddRows(const CopySegment& segment, gpu::DeviceAddress from,
                        gpu::DeviceAddress to) {
  if (!rows_ || !IsForRows(segment)) return false;
  const Status copied = stream().CopyRows({to + segment.destination_offset,
                                           from + segment.source_offset, segment.destination_stride,
                                           segment.source_stride, segment.length, segment.count});
  // What else is wrong the batch that does it instead finds, too.
  rows_ = copied.has_value();
  if (!rows_) log::Warning("blocks are not copied as rows", {{"why", copied.error()}});
  return rows_;
}

Status GpuCopier::AddWithHost(const CopySegment& segment, const MappedBytes& source,
                              const MappedBytes& destination) {
  for (const BlockPlaces& place : segment.places) {
    RETURN_IF_ERROR(AddHostBlock(segment, source, destination, place));
  }
  if (!segment.places.empty()) return {};
  BlockPlaces place{segment.source_offset, segment.destination_offset};
  for (uint32_t block = 0; block < segment.count; ++block) {
    RETURN_IF_ERROR(AddHostBlock(segment, source, destination, place));
    place.source += segment.source_stride;
    place.destination += segment.destination_stride;
  }
  return {};
}

Status GpuCopier::AddHostBlock(const CopySegment& segment, const MappedBytes& source,
                               const MappedBytes& destination, BlockPlaces place) {
  uint64_t length = segment.length;
  const bool to_gpu = destination.gpu != nullptr;
  const MappedBytes& host = to_gpu ? source : destination;
  gpu::DeviceAddress on_gpu =
      to_gpu ? destination.gpu->base() + place.destination : source.gpu->base() + place.source;
  uint64_t on_host = to_gpu ? place.source : place.destination;
  if (host.pinned) {
    const gpu::DeviceAddress there = *host.pinned + on_host;
    return AddItem(
        to_gpu ? gpu::CopyItem{on_gpu, there, length} : gpu::CopyItem{there, on_gpu, length},
        /*by_kernel=*/false);
  }
  if (!HasStaging()) {
    return to_gpu ? context_->CopyFromHost(on_gpu, host.data + on_host, length)
                  : context_->CopyToHost(host.data + on_host, on_gpu, length);
  }
  while (length > 0) {
    if (staging_->room() == 0) RETURN_IF_ERROR(CloseSlice());
    const uint64_t bytes = std::min(length, staging_->room());
    std::byte* const there = host.data + on_host;
    RETURN_IF_ERROR(AddItem(
        to_gpu ? gpu::CopyItem{on_gpu, staging_->Fill(there, bytes), bytes}
               : gpu::CopyItem{staging_->Expect(there, bytes, IsStreamed(segment)), on_gpu, bytes},
        /*by_kernel=*/false));
    on_gpu = on_gpu + bytes;
    on_host += bytes;
    length -= bytes;
  }
  return {};
}

Status GpuCopier::CloseSlice() {
  RETURN_IF_ERROR(IssueBatch());
  ASSIGN_OR_RETURN(last_slice_, staging_->Close(stream()));
  return {};
}

Result<GpuJob> GpuCopier::EndJob() {
  RETURN_IF_ERROR(Issue());
  GpuJob job;
  job.last_slice = last_slice_;
  job.means = std::exchange(job_means_, GpuMeans::kCopyEngine);
  has_job_ = false;
  if (marks_.empty()) {
    ASSIGN_OR_RETURN(job.mark, context_->NewEvent());
  } else {
    job.mark = std::move(marks_.back());
    marks_.pop_back();
  }
  RETURN_IF_ERROR(stream().Record(*job.mark));
  turn_ = (turn_ + 1) % streams_.size();
  return job;
}

void GpuCopier::Idle() { batch_ = kFirstBatch; }

Status GpuCopier::Finish(GpuJob job) {
  marks_.push_back(std::move(job.mark));
  return staging_ == nullptr ? Status() : staging_->Retire(job.last_slice);
}

Status GpuCopier::GiveUp() {
  has_job_ = false;
  job_means_ = GpuMeans::kCopyEngine;
  items_.clear();
  if (context_ == nullptr) return {};  // it was not made ready
  for (const auto& stream : streams_) RETURN_IF_ERROR(stream->Synchronize());
  if (kernels_ != nullptr) kernels_->Forget();
  if (staging_ == nullptr) return {};
  staging_->Forget();
  return staging_->Retire(last_slice_);
}

Status GpuCopier::Drain() {
  if (context_ == nullptr) return {};
  RETURN_IF_ERROR(Issue());
  ASSIGN_OR_RETURN(const std::unique_ptr<gpu::GpuEvent> mark, context_->NewEvent());
  for (const auto& stream : streams_) {
    RETURN_IF_ERROR(stream->Record(*mark));
    RETURN_IF_ERROR(AwaitGpu(*mark));
  }
  return staging_ == nullptr ? Status() : staging_->Retire(last_slice_);
}

Status GpuCopier::Begin(const std::shared_ptr<gpu::GpuContext>& context) {
  if (context_ == nullptr) RETURN_IF_ERROR(Prepare(context));
  has_job_ = true;
  return {};
}

bool GpuCopier::HasKernels() {
  if (asked_for_kernels_) return kernels_ != nullptr;
  asked_for_kernels_ = true;
  Result<std::unique_ptr<KernelList>> kernels = KernelList::Create(*context_, stream());
  if (kernels) {
    kernels_ = std::move(*kernels);
  } else {
    log::Warning("GPU memory is copied by copy engines only", {{"why", kernels.error()}});
  }
  return kernels_ != nullptr;
}

bool GpuCopier::HasStaging() {
  if (asked_for_staging_) return staging_ != nullptr;
  asked_for_staging_ = true;
  Result<std::unique_ptr<StagingBuffer>> staging = StagingBuffer::Create(*context_);
  if (staging) {
    staging_ = std::move(*staging);
  } else {
    log::Warning("the driver copies between GPU memory and the host's by itself, which is slow",
                 {{"why", staging.error()}});
  }
  return staging_ != nullptr;
}

Status GpuCopier::AddItem(const gpu::CopyItem& item, bool by_kernel) {
  if (by_kernel) return kernels_->Add(item, stream());
  items_.push_back(item);
  return items_.size() >= batch_ ? IssueBatch() : Status();
}

Status GpuCopier::Issue() {
  RETURN_IF_ERROR(IssueBatch());
  if (staging_ != nullptr) RETURN_IF_ERROR(CloseSlice());
  return kernels_ == nullptr ? Status() : kernels_->Launch(stream());
}

Status GpuCopier::IssueBatch() {
  if (items_.empty()) return {};
  batch_ = std::min(2 * batch_, kBatchMax);
  Status issued;
  if (batches_ && items_.size() > 1) {
    issued = stream().CopyBatch(items_);
    batches_ = issued || issued.error().code != ErrorCode::kPathUnavailable;
  }
  if (!batches_ || items_.size() == 1) {
    issued = {};
    for (const gpu::CopyItem& item : items_) {
      issued = stream().Copy(item.to, item.from, item.bytes);
      if (!issued) break;
    }
  }
  items_.clear();
  return issued;
}

}  // namespace gantry::worker
