#include "sidecar/worker/gpu_copier.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "lib/base/clock.h"

namespace gantry::worker {
namespace {

// More in one call of the driver gain nothing, and the first of them would wait for the last.
constexpr size_t kItemsPerBatch = 1024;
// So long it is asked again and again whether the GPU is done, then now and then.
constexpr microseconds kSpin{500};
constexpr microseconds kPause{20};

}  // namespace

Status GpuCopier::Add(const CopySegment& segment, const MappedBytes& source,
                      const MappedBytes& destination) {
  RETURN_IF_ERROR(Begin(destination.gpu->context()));
  gpu::CopyItem item;
  item.from = source.gpu->base() + segment.source_offset;
  item.to = destination.gpu->base() + segment.destination_offset;
  item.bytes = segment.length;
  for (uint32_t block = 0; block < segment.count; ++block) {
    items_.push_back(item);
    item.from = item.from + segment.source_stride;
    item.to = item.to + segment.destination_stride;
    if (items_.size() == kItemsPerBatch) RETURN_IF_ERROR(Issue());
  }
  return {};
}

Status GpuCopier::Finish() {
  RETURN_IF_ERROR(Issue());
  return Await();
}

Status GpuCopier::Begin(const std::shared_ptr<gpu::GpuContext>& context) {
  busy_ = true;
  if (context_ != nullptr) return {};
  ASSIGN_OR_RETURN(stream_, context->NewStream());
  ASSIGN_OR_RETURN(done_, context->NewEvent());
  context_ = context;
  return {};
}

Status GpuCopier::Issue() {
  if (items_.empty()) return {};
  Status issued;
  if (batches_) {
    issued = stream_->CopyBatch(items_);
    batches_ = issued || issued.error().code != ErrorCode::kPathUnavailable;
  }
  if (!batches_) {
    issued = {};
    for (const gpu::CopyItem& item : items_) {
      issued = stream_->Copy(item.to, item.from, item.bytes);
      if (!issued) break;
    }
  }
  items_.clear();
  return issued;
}

Status GpuCopier::Await() {
  if (!busy_) return {};
  RETURN_IF_ERROR(stream_->Record(*done_));
  const TimePoint start = Clock::now();
  for (;;) {
    ASSIGN_OR_RETURN(const bool reached, done_->IsReached());
    if (reached) break;
    if (Clock::now() - start < kSpin) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  busy_ = false;
  return {};
}

}  // namespace gantry::worker
