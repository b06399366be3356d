#include "sidecar/worker/process/worker_loop.h"

#include <algorithm>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/worker/process/stream_copy.h"

namespace gantry::worker {
namespace {

// So many may wait for their GPU: the pool is told early of those that are done.
constexpr size_t kPendingMax = 64;
// Not where threads spin for as long as a wake-up takes (docs/decisions/0025).
constexpr microseconds kKeepAliveAfter{500};
constexpr microseconds kKeepAliveEvery{100};
// Of a GPU that had nothing to do for so long parts have fallen asleep, and of the way to others;
// after so long the next jobs are as likely to be others.
constexpr milliseconds kAwake{2};
constexpr milliseconds kWanted{1'000};

}  // namespace

WorkerLoop::WorkerLoop(WorkerRingEnd* ring, MappingTable* mappings, nanoseconds spin)
    : ring_(ring),
      mappings_(mappings),
      spin_(spin),
      meanwhile_{[this] { KeepGpuAwake(); }, [this] { WakeGpuAfterPause(); }},
      gpu_holds_(mappings) {}

Status WorkerLoop::UseGpu(const memory::GpuDevices& gpus) {
  RETURN_IF_ERROR(gpu_copier_.Prepare(gpus.context()));
  auto keep_alive = GpuKeepAlive::Create(gpus);
  if (keep_alive) {
    keep_alive_ = *std::move(keep_alive);
  } else {
    log::Warning("a GPU is not kept awake between copies", {{"why", keep_alive.error()}});
  }
  return {};
}

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
        ReleaseHostMemory();
        if (pending_.empty() && !gpu_copier_.has_job()) {
          gpu_copier_.Idle();
          next_keep_alive_ = Clock::now() + kKeepAliveAfter;
          ring_->WaitForSegment(spin_, stop_, meanwhile_);
          continue;
        }
        RETURN_IF_ERROR(CompletePending());
        patience_.Pause();
        continue;
      case RingTake::kCorrupt:
        return Fail(ErrorCode::kInternal, "the submission ring holds an impossible entry");
    }
  }
  ReleaseHostMemory();
  return Drain();
}

// One worker of all: where a GPU turns from one process to the next, a small copy waits for that.
void WorkerLoop::KeepGpuAwake() {
  if (keep_alive_ == nullptr || Clock::now() < next_keep_alive_) return;
  if (ring_->CopiedOnGpuLast()) SendKeepAlive();
  next_keep_alive_ = Clock::now() + kKeepAliveEvery;
}

// While a request is read, or its jobs are planned.
void WorkerLoop::WakeGpuAfterPause() {
  if (keep_alive_ == nullptr || !ring_->CopiedOnGpuLast()) return;
  const auto idle = Clock::now() - gpu_done_;
  if (idle > kAwake && idle < kWanted) SendKeepAlive();
}

// After an error what is read may be in use until GiveUp has waited for it; where that fails, too,
// the next job ends this worker.
void WorkerLoop::SendKeepAlive() {
  const Status kept = ReadALittle();
  if (kept) return;
  log::Warning("a GPU is not kept awake between copies any more", {{"why", kept.error()}});
  const Status quiet = gpu_copier_.GiveUp();
  keep_alive_job_.reset();
  if (quiet) {
    keep_alive_.reset();
  } else {
    static_cast<void>(keep_alive_.release());
  }
}

// Nothing while the GPU is at the last one still. No job waits for it. REQUIRES that no job is
// being made or pending.
Status WorkerLoop::ReadALittle() {
  if (keep_alive_job_) {
    ASSIGN_OR_RETURN(const bool done, GpuCopier::IsDone(*keep_alive_job_));
    if (!done) return {};
    RETURN_IF_ERROR(gpu_copier_.Finish(*std::exchange(keep_alive_job_, std::nullopt)));
  }
  RETURN_IF_ERROR(gpu_copier_.Add(keep_alive_->Next()));
  ASSIGN_OR_RETURN(keep_alive_job_, gpu_copier_.EndJob());
  gpu_copier_.Idle();
  return {};
}

void WorkerLoop::Stop() {
  stop_.store(true);
  ring_->WakeWorker();
}

Status WorkerLoop::RunSegment(uint64_t tag, const CopySegment& segment, bool ends_job) {
  if (!job_start_) {
    job_start_ = Clock::now();
    ++job_;
  }
  // Once a segment was refused the job moves nothing more.
  if (!job_error_) {
    ASSIGN_OR_RETURN(job_error_, Copy(segment));
  }
  return ends_job ? EndJob(tag) : Status();
}

Status WorkerLoop::EndJob(uint64_t tag) {
  ReleaseHostMemory();
  Pending job;
  job.completion.tag = tag;
  job.completion.ok = !job_error_;
  job.completion.code = job_error_.value_or(ErrorCode::kInternal);
  job.number = job_;
  job.start = *job_start_;
  job_start_.reset();
  job_error_.reset();
  if (gpu_copier_.has_job()) {
    Result<GpuJob> given = gpu_copier_.EndJob();
    if (given) {
      job.gpu = *std::move(given);
    } else {
      ASSIGN_OR_RETURN(job.completion.code, GiveUp(given.error()));
      job.completion.ok = false;
    }
  }
  if (!job.gpu) {
    job.completion.copy_nanoseconds = static_cast<uint64_t>((Clock::now() - job.start).count());
    if (pending_.empty()) {
      gpu_holds_.Release(job.number);
      return Complete(job);
    }
  }
  pending_.push_back(std::move(job));
  patience_.Reset();
  RETURN_IF_ERROR(CompletePending());
  return pending_.size() < kPendingMax ? Status() : Drain();
}

Status WorkerLoop::CompletePending() {
  while (!pending_.empty()) {
    ASSIGN_OR_RETURN(const bool done, CompleteIfDone(&pending_.front()));
    if (!done) return {};
    pending_.pop_front();
  }
  return {};
}

Result<bool> WorkerLoop::CompleteIfDone(Pending* job) {
  if (job->gpu) {
    ASSIGN_OR_RETURN(const bool done, GpuCopier::IsDone(*job->gpu));
    if (!done) return false;
    job->completion.means = job->gpu->means;
    RETURN_IF_ERROR(gpu_copier_.Finish(std::move(*job->gpu)));
    const TimePoint now = Clock::now();
    job->completion.copy_nanoseconds =
        static_cast<uint64_t>((now - std::max(job->start, gpu_done_)).count());
    gpu_done_ = now;
    patience_.Reset();
  }
  gpu_holds_.Release(job->number);  // also of a job that was refused before the GPU got any of it
  RETURN_IF_ERROR(Complete(*job));
  return true;
}

Status WorkerLoop::Complete(const Pending& job) {
  if (ring_->Complete(job.completion)) return {};
  return Fail(ErrorCode::kInternal, "the completion ring is full");
}

Result<std::optional<ErrorCode>> WorkerLoop::Copy(const CopySegment& segment) {
  const auto source = FindMapping(kSourceGuard, segment.source);
  const auto destination = FindMapping(kDestinationGuard, segment.destination);
  if (!source || !destination) return ErrorCode::kStaleGeneration;
  const std::optional<ErrorCode> refused = ValidateSegment(segment, *source, *destination);
  if (refused) return refused;
  if (source->gpu != nullptr || destination->gpu != nullptr) return CopyOnGpu(segment);
  const auto next = ring_->PeekSegment();
  if (next && next->source == segment.source && next->destination == segment.destination) {
    PrefetchBytes(*next, *source, *destination);
  }
  return CopyBytes(segment, *source, *destination);
}

std::optional<MappedBytes> WorkerLoop::FindMapping(size_t guard, memory::MappingId id) {
  const auto held = gpu_holds_.Find(id);
  return held ? held : mappings_->Protect(guard, id);
}

Result<std::optional<ErrorCode>> WorkerLoop::CopyOnGpu(const CopySegment& segment) {
  if (!gpu_holds_.HasRoomForTwo()) RETURN_IF_ERROR(Drain());
  const auto source = gpu_holds_.Hold(segment.source, job_);
  const auto destination = gpu_holds_.Hold(segment.destination, job_);
  if (!source || !destination) return ErrorCode::kStaleGeneration;
  ring_->NoteCopyOnGpu();
  const Status added = gpu_copier_.Add(segment, *source, *destination);
  if (added) return std::nullopt;
  ASSIGN_OR_RETURN(const ErrorCode code, GiveUp(added.error()));
  return code;
}

// Where the driver has no memory for a call it has done nothing else: the job fails, and others may
// find some. Every other error may be the context's, which nothing but its end mends.
Result<ErrorCode> WorkerLoop::GiveUp(const Error& error) {
  if (error.code != ErrorCode::kResourceExhausted) return Fail(error);
  log::Warning("a GPU's driver has no memory for a copy, which fails", {{"error", error}});
  RETURN_IF_ERROR(gpu_copier_.GiveUp());
  return error.code;
}

Status WorkerLoop::Drain() {
  FenceStreams();
  RETURN_IF_ERROR(gpu_copier_.Drain());
  RETURN_IF_ERROR(CompletePending());
  gpu_holds_.Release(job_);
  return {};
}

// Where a guard passes from one mapping to the next within a job, its sequentially consistent store
// is a fence for streams, too.
void WorkerLoop::ReleaseHostMemory() {
  FenceStreams();
  mappings_->Release(kSourceGuard);
  mappings_->Release(kDestinationGuard);
}

}  // namespace gantry::worker
