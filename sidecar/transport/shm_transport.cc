#include "sidecar/transport/shm_transport.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sidecar/transport/shm_operation.h"

namespace gantry::transport {
namespace {

constexpr size_t kCompletionsPerPoll = 64;
// A transfer is split so that every worker gets some of it, down to this.
constexpr uint64_t kJobBytesMin = 64 * 1024;

// Faster than a worker copies on today's machines: a nap that is based on it ends too early, which
// costs a wake-up, rather than too late, which would leave a worker without work.
constexpr uint64_t kCopyBytesPerNanosecond = 20;
constexpr uint64_t kUnattendedBytesMin = 2 * 1024 * 1024;

uint64_t TagOf(uint32_t slot, uint32_t generation) {
  return (static_cast<uint64_t>(generation) << 32) | slot;
}

worker::CopySegment CopyOf(const MoveSegment& segment, const MovePlan& plan) {
  const memory::MappingId local = plan.local[segment.local_allocation]->mapping();
  const memory::MappingId remote = plan.remote[segment.remote_allocation].mapped->mapping();
  worker::CopySegment copy;
  copy.length = segment.length;
  copy.count = segment.count;
  copy.source = remote;
  copy.source_offset = segment.remote_offset;
  copy.source_stride = segment.remote_stride;
  copy.destination = local;
  copy.destination_offset = segment.local_offset;
  copy.destination_stride = segment.local_stride;
  if (plan.operation == wire::Operation::kWrite) {
    std::swap(copy.source, copy.destination);
    std::swap(copy.source_offset, copy.destination_offset);
    std::swap(copy.source_stride, copy.destination_stride);
  }
  return copy;
}

}  // namespace

ShmTransport::ShmTransport(ShmOptions options, worker::CopyPool& pool)
    : options_(options), pool_(pool), load_(static_cast<size_t>(pool.worker_count())) {}

ShmTransport::~ShmTransport() = default;

Status ShmTransport::Probe() { return {}; }

Status ShmTransport::CanReach(const memory::MappedAllocation& local,
                              const RemoteAllocation& remote) const {
  if (local.kind() != wire::MemoryKind::kHost) {
    return Fail(ErrorCode::kPathUnavailable, "the local buffer is not host memory");
  }
  if (remote.mapped == nullptr) {
    return Fail(ErrorCode::kPathUnavailable,
                "the remote buffer is not mapped here: it is on another node or not shared");
  }
  if (remote.mapped->kind() != wire::MemoryKind::kHost) {
    return Fail(ErrorCode::kPathUnavailable, "the remote buffer is not host memory");
  }
  return {};
}

std::unique_ptr<Operation> ShmTransport::Start(std::shared_ptr<const MovePlan> plan, int priority,
                                               uint64_t token) {
  const uint64_t share = plan->bytes / (2 * std::max<size_t>(load_.size(), 1));
  const bool on_gpus =
      !plan->local.empty() && plan->local.front()->kind() == wire::MemoryKind::kGpu;
  ShmOperation::Limits limits;
  limits.job_bytes = std::max(share, kJobBytesMin);
  limits.job_bytes =
      std::min(limits.job_bytes, on_gpus ? options_.gpu_job_bytes_max : options_.job_bytes_max);
  limits.job_segments = on_gpus ? options_.gpu_job_segments_max : options_.job_segments_max;
  limits.bytes_weigh = on_gpus ? options_.gpu_bytes_weigh : 1;
  auto operation = std::make_unique<ShmOperation>(*this, std::move(plan), priority, token, limits);
  waiting_[priority].push_back(operation.get());
  return operation;
}

bool ShmTransport::Poll(std::vector<uint64_t>* attention) {
  const bool completed = TakeCompletions();
  const bool fed = Feed();
  const bool any = completed || fed || !finished_.empty();
  attention->insert(attention->end(), finished_.begin(), finished_.end());
  finished_.clear();
  return any;
}

nanoseconds ShmTransport::Unattended() const {
  uint64_t least = UINT64_MAX;
  for (size_t worker = 0; worker < load_.size(); ++worker) {
    if (pool_.usable(static_cast<int>(worker))) least = std::min(least, load_[worker].weight);
  }
  if (least == UINT64_MAX || least < kUnattendedBytesMin) return nanoseconds(0);
  return nanoseconds(static_cast<int64_t>((least - kUnattendedBytesMin) / kCopyBytesPerNanosecond));
}

bool ShmTransport::TakeCompletions() {
  std::array<worker::Completion, kCompletionsPerPoll> completions;
  const size_t count = pool_.Poll(completions);
  for (size_t i = 0; i < count; ++i) Complete(completions[i]);
  return count > 0;
}

void ShmTransport::Complete(const worker::Completion& completion) {
  const auto slot = static_cast<uint32_t>(completion.tag);
  if (slot >= jobs_.size()) return;
  Job& job = jobs_[slot];
  if (job.operation == nullptr || TagOf(slot, job.generation) != completion.tag) return;
  const Job done = std::exchange(job, Job{nullptr, job.generation + 1, 0, 0, 0, 0, 0, false});
  free_jobs_.push_back(slot);
  WorkerLoad& load = load_[static_cast<size_t>(done.worker)];
  load.weight -= done.weight;
  --load.jobs;
  const bool had_work = done.operation->HasWork();
  done.operation->Done({done.begin, done.end, done.bytes, done.retried}, done.worker, completion);
  if (!had_work && done.operation->HasWork()) {  // a part came back from a dead worker
    waiting_[done.operation->priority()].push_front(done.operation);
  }
}

bool ShmTransport::Feed() {
  bool any = false;
  passed_.assign(load_.size(), false);
  for (int worker = NextWorker(passed_); worker >= 0; worker = NextWorker(passed_)) {
    const bool fed = FeedWorker(worker);
    any |= fed;
    passed_[static_cast<size_t>(worker)] = !fed;  // another one may have room
  }
  return any;
}

int ShmTransport::NextWorker(const std::vector<bool>& passed) const {
  if (waiting_.empty()) return -1;
  int best = -1;
  const auto count = static_cast<int>(load_.size());
  for (int i = 0; i < count; ++i) {
    // Beginning with the last one: at equal load the worker that is warm goes first.
    const int worker = (last_worker_ + i) % count;
    const WorkerLoad& load = load_[static_cast<size_t>(worker)];
    if (load.weight >= options_.inflight_bytes_max || load.jobs >= options_.inflight_jobs_max ||
        passed[static_cast<size_t>(worker)] || !pool_.usable(worker) ||
        pool_.free_slots(worker) == 0) {
      continue;
    }
    if (best < 0 || load.weight < load_[static_cast<size_t>(best)].weight) best = worker;
  }
  return best;
}

bool ShmTransport::FeedWorker(int worker) {
  while (!waiting_.empty()) {
    Queue& queue = waiting_.begin()->second;
    if (queue.empty()) {
      waiting_.erase(waiting_.begin());
      continue;
    }
    ShmOperation* operation = queue.front();
    queue.pop_front();
    if (!operation->HasWork()) continue;
    const bool posted = PostJob(operation, worker);
    if (operation->HasWork()) {
      // Its turn is over, unless the worker had no room for it.
      if (posted) {
        queue.push_back(operation);
      } else {
        queue.push_front(operation);
      }
    }
    return posted;
  }
  return false;
}

bool ShmTransport::PostJob(ShmOperation* operation, int worker) {
  const size_t room = std::min(pool_.free_slots(worker), operation->limits().job_segments);
  const ShmOperation::Part part = operation->NextPart(room);
  if (part.begin == part.end) return false;
  scratch_.clear();
  for (uint32_t i = part.begin; i < part.end; ++i) {
    scratch_.push_back(CopyOf(operation->plan().segments[i], operation->plan()));
  }
  if (free_jobs_.empty()) {
    free_jobs_.push_back(static_cast<uint32_t>(jobs_.size()));
    jobs_.emplace_back();
  }
  const uint32_t slot = free_jobs_.back();
  Job& job = jobs_[slot];
  if (!pool_.Post(worker, TagOf(slot, job.generation), scratch_)) return false;
  free_jobs_.pop_back();
  const uint64_t weight = part.bytes / operation->limits().bytes_weigh;
  job = {operation, job.generation, worker, part.begin, part.end, weight, part.bytes, part.retried};
  WorkerLoad& load = load_[static_cast<size_t>(worker)];
  load.weight += weight;
  ++load.jobs;
  last_worker_ = worker;
  operation->Posted(part, worker);
  return true;
}

void ShmTransport::Leave(ShmOperation* operation) {
  for (auto& [priority, queue] : waiting_) std::erase(queue, operation);
}

}  // namespace gantry::transport
