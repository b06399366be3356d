#include "sidecar/copy/copy_operation.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

namespace gantry::transport {
namespace {

bool Has(const MovePlan& plan, wire::MemoryKind kind) {
  return std::any_of(plan.local.begin(), plan.local.end(),
                     [&](const auto& local) { return local->kind() == kind; }) ||
         std::any_of(plan.remote.begin(), plan.remote.end(),
                     [&](const auto& remote) { return remote.mapped->kind() == kind; });
}

void AddGpu(const memory::MappedAllocation& allocation, const worker::CopyWorkers& workers,
            std::vector<int>* gpus) {
  if (allocation.kind() != wire::MemoryKind::kGpu) return;
  const int gpu = workers.GpuPlace(allocation.gpu().device_uuid);
  if (gpu >= 0 && std::find(gpus->begin(), gpus->end(), gpu) == gpus->end()) gpus->push_back(gpu);
}

std::vector<int> GpusOf(const MovePlan& plan, const worker::CopyWorkers& workers) {
  std::vector<int> gpus;
  const auto add_local = [&] {
    for (const auto& local : plan.local) AddGpu(*local, workers, &gpus);
  };
  const auto add_remote = [&] {
    for (const auto& remote : plan.remote) AddGpu(*remote.mapped, workers, &gpus);
  };
  if (plan.operation == wire::Operation::kWrite) add_remote();
  add_local();
  add_remote();
  return gpus;
}

}  // namespace

CopyOperation::CopyOperation(CopyScheduler& scheduler, std::shared_ptr<const MovePlan> plan,
                             int priority, uint64_t token, std::vector<uint64_t>* ready_tokens,
                             TimePoint last_post)
    : scheduler_(scheduler),
      plan_(std::move(plan)),
      priority_(priority),
      token_(token),
      ready_tokens_(ready_tokens),
      last_post_(last_post),
      with_host_(Has(*plan_, wire::MemoryKind::kHost)),
      on_gpus_(Has(*plan_, wire::MemoryKind::kGpu)),
      gpus_(GpusOf(*plan_, scheduler.workers_)),
      segment_count_(static_cast<uint32_t>(plan_->segments.size())),
      segment_done_(plan_->segments.size()) {
  progress_.chunks_total = plan_->segments.size();
}

CopyOperation::~CopyOperation() { scheduler_.Forget(this); }

void CopyOperation::Stop() {
  if (stopped_) return;
  stopped_ = true;
  FinishIfQuiet();
}

void CopyOperation::Abort() {
  Stop();
  std::vector<bool> replaced(scheduler_.load_.size());
  for (const CopyScheduler::Job& job : scheduler_.jobs_) {
    if (job.operation != this || replaced[static_cast<size_t>(job.worker)]) continue;
    replaced[static_cast<size_t>(job.worker)] = true;
    scheduler_.workers_.Replace(job.worker);
  }
}

void CopyOperation::Hasten() {
  scheduler_.Forget(this);
  priority_ = INT_MAX;
  if (HasWork()) scheduler_.waiting_[priority_].For(scheduler_.KindOf(*this)).push_back(this);
}

bool CopyOperation::HasWork() const {
  if (stopped_ || (again_.empty() && next_segment_ == segment_count_)) return false;
  return last_post_ == TimePoint::max() || Clock::now() < last_post_;
}

PlanPart CopyOperation::NextPart(size_t segments_max, uint64_t bytes_max, JobBuilder* job) const {
  const bool retried = !again_.empty();
  PlanPart part = {next_segment_, next_segment_, 0, retried};
  if (retried) part = {again_.front().begin, again_.front().begin, 0, true};
  uint64_t end = retried ? again_.front().end : segment_count_;
  end = std::min<uint64_t>(end, part.begin + segments_max);
  auto next = plan_->segments.From(part.begin);
  while (part.end < end) {
    const uint64_t bytes_left = bytes_max - std::min(bytes_max, part.bytes);
    const SegmentList::PairRuns blocks = next.SingleBlocks();
    if (blocks.runs.empty()) {
      const MoveSegment segment = *next;
      if (part.bytes > 0 && segment.bytes() > bytes_left) break;
      job->Add(segment);
      part.bytes += segment.bytes();
      ++part.end;
      ++next;
      continue;
    }
    const uint64_t unit = blocks.pair->unit_bytes;
    const uint64_t room = std::max<uint64_t>(bytes_left / unit, part.bytes == 0 ? 1 : 0);
    const uint64_t count = std::min({uint64_t{blocks.runs.size()}, end - part.end, room});
    if (count == 0) break;
    job->AddBlocks(*blocks.pair, blocks.runs.first(count));
    part.bytes += count * unit;
    part.end += static_cast<uint32_t>(count);
    next.Skip(count);
  }
  return part;
}

void CopyOperation::Posted(const PlanPart& part, int worker) {
  if (part.retried) {
    again_.front().begin = part.end;
    if (part.end == again_.front().end) again_.pop_front();
    progress_.chunks_retried += part.end - part.begin;
  } else {
    next_segment_ = part.end;
    posted_bytes_ += part.bytes;
  }
  ++inflight_;
  worker_used_.resize(std::max(worker_used_.size(), static_cast<size_t>(worker) + 1));
  if (!worker_used_[static_cast<size_t>(worker)]) ++progress_.workers;
  worker_used_[static_cast<size_t>(worker)] = true;
  if (!progress_.first_posted) progress_.first_posted = Clock::now();
}

bool CopyOperation::KeepsTurn(uint64_t turn_bytes) {
  if (between_gpus() && posted_bytes_ - turn_began_at_ < turn_bytes) return true;
  turn_began_at_ = posted_bytes_;
  return false;
}

void CopyOperation::Done(const PlanPart& part, int worker, const worker::Completion& completion,
                         GpuCopyReason why) {
  --inflight_;
  if (on_gpus_ && completion.ok) {
    ++(completion.means == worker::GpuMeans::kKernel ? progress_.gpu_jobs_by_kernel
                                                     : progress_.gpu_jobs_by_engine);
    ++progress_.gpu_jobs_by_reason[static_cast<size_t>(why)];
  }
  progress_.copy_nanoseconds += completion.copy_nanoseconds;
  if (completion.ok) {
    progress_.bytes += part.bytes;
    progress_.chunks += part.end - part.begin;
    std::fill(segment_done_.begin() + part.begin, segment_done_.begin() + part.end, true);
  } else if (completion.code == ErrorCode::kWorkerLost && !part.retried) {
    // The worker is gone for certain, so that its copies cannot race with the second attempt.
    again_.push_back({part.begin, part.end, part.bytes, true});
  } else {
    const bool no_memory = completion.code == ErrorCode::kResourceExhausted;
    const bool truncated = completion.code == ErrorCode::kFdTooShort;
    Fail(Error(
        completion.code,
        "copy worker " + std::to_string(worker) +
            (completion.code == ErrorCode::kWorkerLost ? " died, like the one before it,"
             : no_memory ? " could not copy, as its GPU's driver has no memory left:"
             : truncated ? " found no page where a file of unsealed memory had one:"
                         : " could not copy:") +
            " at segments " + std::to_string(part.begin) + " to " + std::to_string(part.end - 1) +
            " of " + std::to_string(plan_->segments.size()),
        no_memory ? "leave more of the GPU's memory free (gpu_memory_utilization of vLLM), or "
                    "have fewer copy workers use it (--gpu-workers)"
        : truncated
            ? "its owner truncated the file of a buffer, or its file system (/dev/shm) is full"
            : "the log of the sidecar says why a worker ended"));
  }
  FinishIfQuiet();
}

void CopyOperation::Fail(Error error) {
  if (!error_ && inflight_ > 0) ready_tokens_->push_back(token_);
  if (!error_) error_ = std::move(error);
  stopped_ = true;
}

void CopyOperation::Refuse(Error error) {
  if (!HasWork()) return;
  Fail(std::move(error));
  FinishIfQuiet();
}

void CopyOperation::FinishIfQuiet() {
  if (finished_ || inflight_ > 0 || HasWork()) return;
  finished_ = true;
  ready_tokens_->push_back(token_);
}

std::vector<uint32_t> CopyOperation::UnfinishedItems() const {
  std::vector<uint32_t> items;
  for (size_t i = 0; i < segment_done_.size(); ++i) {
    if (segment_done_[i]) continue;
    const MoveSegment& segment = plan_->segments[i];
    for (uint32_t item = 0; item < segment.items; ++item)
      items.push_back(segment.first_item + item);
  }
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  return items;
}

}  // namespace gantry::transport
