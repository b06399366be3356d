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
  RETURN_IF_ERROR(Use(destination.gpu->context()));
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

Result<GpuCopier::Lane*> GpuCopier::LaneOf(const std::shared_ptr<gpu::GpuContext>& context) {
  if (const auto known = lanes_.find(context.get()); known != lanes_.end()) return &known->second;
  Lane lane;
  lane.context = context;
  ASSIGN_OR_RETURN(lane.stream, context->NewStream());
  ASSIGN_OR_RETURN(lane.done, context->NewEvent());
  return &lanes_.emplace(context.get(), std::move(lane)).first->second;
}

// The GPU that is written to does the work.
Status GpuCopier::Use(const std::shared_ptr<gpu::GpuContext>& context) {
  if (lane_ != nullptr && lane_->context == context) return {};
  RETURN_IF_ERROR(Issue());
  RETURN_IF_ERROR(Await());
  ASSIGN_OR_RETURN(lane_, LaneOf(context));
  return {};
}

Status GpuCopier::Issue() {
  if (items_.empty()) return {};
  Status issued;
  if (lane_->batches) {
    issued = lane_->stream->CopyBatch(items_);
    lane_->batches = issued || issued.error().code != ErrorCode::kPathUnavailable;
  }
  if (!lane_->batches) {
    issued = {};
    for (const gpu::CopyItem& item : items_) {
      issued = lane_->stream->Copy(item.to, item.from, item.bytes);
      if (!issued) break;
    }
  }
  items_.clear();
  return issued;
}

Status GpuCopier::Await() {
  if (lane_ == nullptr) return {};
  RETURN_IF_ERROR(lane_->stream->Record(*lane_->done));
  const TimePoint start = Clock::now();
  for (;;) {
    ASSIGN_OR_RETURN(const bool reached, lane_->done->IsReached());
    if (reached) break;
    if (Clock::now() - start < kSpin) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  lane_ = nullptr;
  return {};
}

}  // namespace gantry::worker
