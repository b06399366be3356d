#include "sidecar/worker/worker_loop.h"

namespace gantry::worker {

WorkerLoop::WorkerLoop(WorkerRingEnd* ring, MappingTable* mappings, nanoseconds spin)
    : ring_(ring), mappings_(mappings), spin_(spin) {}

Status WorkerLoop::Run() {
  uint64_t tag = 0;
  CopySegment segment;
  bool ends_job = false;
  while (!stop_.load()) {
    switch (ring_->TakeSegment(&tag, &segment, &ends_job)) {
      case RingTake::kEntry:
        RETURN_IF_ERROR(RunSegment(tag, segment, ends_job));
        continue;
      case RingTake::kEmpty:
        RETURN_IF_ERROR(ReleaseAll());
        ring_->WaitForSegment(&spin_, stop_);
        continue;
      case RingTake::kCorrupt:
        return Fail(ErrorCode::kInternal, "the submission ring holds an impossible entry");
    }
  }
  return ReleaseAll();
}

void WorkerLoop::Stop() {
  stop_.store(true);
  ring_->WakeWorker();
}

Status WorkerLoop::RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job) {
  if (!job_start_) job_start_ = Clock::now();
  // Once a segment was refused the job moves nothing more.
  if (!job_error_) {
    ASSIGN_OR_RETURN(job_error_, Copy(segment));
  }
  if (!ends_job) return {};
  RETURN_IF_ERROR(ReleaseAll());
  Completion completion;
  completion.tag = tag;
  completion.ok = !job_error_;
  completion.code = job_error_.value_or(ErrorCode::kInternal);
  completion.copy_nanoseconds = static_cast<uint64_t>((Clock::now() - *job_start_).count());
  job_start_.reset();
  job_error_.reset();
  if (ring_->Complete(completion)) return {};
  return Fail(ErrorCode::kInternal, "the completion ring is full");
}

Result<std::optional<ErrorCode>> WorkerLoop::Copy(const CopySegment& segment) {
  RETURN_IF_ERROR(Protect(segment));
  if (!source_ || !destination_) return ErrorCode::kStaleGeneration;
  const std::optional<ErrorCode> refused = ValidateSegment(segment, *source_, *destination_);
  if (refused) return refused;
  if (source_->gpu != nullptr) {
    RETURN_IF_ERROR(gpu_copier_.Add(segment, *source_, *destination_));
    return std::nullopt;
  }
  const auto next = ring_->PeekSegment();
  if (next && next->source == segment.source && next->destination == segment.destination) {
    PrefetchBytes(*next, *source_, *destination_);
  }
  CopyBytes(segment, *source_, *destination_);
  return std::nullopt;
}

Status WorkerLoop::Protect(const CopySegment& segment) {
  if (!gpu_copier_.idle()) {
    if (segment.source == protected_segment_.source &&
        segment.destination == protected_segment_.destination) {
      return {};
    }
    RETURN_IF_ERROR(gpu_copier_.Finish());
  }
  source_ = mappings_->Protect(MappingTable::kSource, segment.source);
  destination_ = mappings_->Protect(MappingTable::kDestination, segment.destination);
  protected_segment_ = segment;
  return {};
}

Status WorkerLoop::ReleaseAll() {
  if (!gpu_copier_.idle()) RETURN_IF_ERROR(gpu_copier_.Finish());
  mappings_->ReleaseAll();
  return {};
}

}  // namespace gantry::worker
