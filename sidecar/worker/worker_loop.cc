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
        if (RunSegment(tag, segment, ends_job)) continue;
        return Fail(ErrorCode::kInternal, "the completion ring is full");
      case RingTake::kEmpty:
        mappings_->ReleaseAll();
        ring_->WaitForSegment(&spin_, stop_);
        continue;
      case RingTake::kCorrupt:
        return Fail(ErrorCode::kInternal, "the submission ring holds an impossible entry");
    }
  }
  mappings_->ReleaseAll();
  return {};
}

void WorkerLoop::Stop() {
  stop_.store(true);
  ring_->WakeWorker();
}

// False when the job could not be completed.
bool WorkerLoop::RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job) {
  if (!job_start_) job_start_ = Clock::now();
  // Once a segment was refused the job moves nothing more.
  if (!job_error_) job_error_ = Copy(segment);
  if (!ends_job) return true;
  mappings_->ReleaseAll();
  Completion completion;
  completion.tag = tag;
  completion.ok = !job_error_;
  completion.code = job_error_.value_or(ErrorCode::kInternal);
  completion.copy_nanoseconds = static_cast<uint64_t>((Clock::now() - *job_start_).count());
  job_start_.reset();
  job_error_.reset();
  return ring_->Complete(completion);
}

std::optional<ErrorCode> WorkerLoop::Copy(const CopySegment& segment) {
  const auto source = mappings_->Protect(MappingTable::kSource, segment.source);
  const auto destination = mappings_->Protect(MappingTable::kDestination, segment.destination);
  if (!source || !destination) return ErrorCode::kStaleGeneration;
  const std::optional<ErrorCode> refused = ValidateSegment(segment, *source, *destination);
  const auto next = ring_->PeekSegment();
  if (next && next->source == segment.source && next->destination == segment.destination) {
    PrefetchBytes(*next, *source, *destination);
  }
  if (!refused) CopyBytes(segment, *source, *destination);
  return refused;
}

}  // namespace gantry::worker
