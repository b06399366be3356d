#include "sidecar/copy/copy_scheduler.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include "sidecar/copy/copy_operation.h"

namespace gantry::transport {
namespace {

// A transfer is split so that every worker gets some of it, down to this.
constexpr uint64_t kJobBytesMin = 64 << 10;
constexpr uint64_t kGpuJobBytesMin = 1 << 20;
// A job of rows. Longer ones gain nothing, and a cancel waits for three of them.
constexpr uint64_t kRowJobBytes = 16 << 20;
constexpr size_t kFirstKernelBlocks = 1024;
constexpr size_t kKernelSteps = 3;

// Faster than a worker copies on today's machines: a wait that is based on it ends too early, which
// costs a wake-up, rather than too late, which would leave a worker without work.
constexpr uint64_t kCopyBytesPerNanosecond = 20;
constexpr uint64_t kUnattendedBytesMin = 2 << 20;

// How many segments have so many blocks, one at least.
size_t SegmentsOf(const MovePlan& plan, size_t blocks) {
  const CopyCounts& copies = plan.segments.copies();
  const uint64_t all = std::max<uint64_t>(copies.blocks + copies.rows, 1);
  return std::max<size_t>(blocks * plan.segments.size() / all, 1);
}

// As Kind has it.
int SizeOf(uint64_t bytes, uint64_t small) {
  const uint64_t times = (bytes - std::min<uint64_t>(bytes, 1)) / small;
  return (static_cast<int>(std::bit_width(times)) + 2) / 3;
}

uint64_t TagOf(uint32_t slot, uint32_t generation) {
  return (static_cast<uint64_t>(generation) << 32) | slot;
}

}  // namespace

CopyScheduler::CopyScheduler(const CopySchedulerOptions& options, worker::CopyPool& pool,
                             worker::CopyWorkers& workers)
    : options_(options),
      pool_(pool),
      workers_(workers),
      recent_(options, workers),
      load_(static_cast<size_t>(workers.worker_count())) {}

std::unique_ptr<Operation> CopyScheduler::Start(std::shared_ptr<const MovePlan> plan, int priority,
                                                uint64_t token) {
  return StartFor(std::move(plan), priority, token, &finished_);
}

std::unique_ptr<CopyOperation> CopyScheduler::StartFor(std::shared_ptr<const MovePlan> plan,
                                                       int priority, uint64_t token,
                                                       std::vector<uint64_t>* ready_tokens,
                                                       TimePoint last_post) {
  auto operation = std::make_unique<CopyOperation>(*this, std::move(plan), priority, token,
                                                   ready_tokens, last_post);
  waiting_[priority].For(KindOf(*operation)).push_back(operation.get());
  return operation;
}

PollOutcome CopyScheduler::Poll(std::vector<uint64_t>* ready_tokens) {
  const bool completed = TakeCompletions();
  const bool fed = Feed();
  const bool any = completed || fed || !finished_.empty();
  ready_tokens->insert(ready_tokens->end(), finished_.begin(), finished_.end());
  finished_.clear();
  // Copies by processors are better left alone by whoever polls.
  const bool should_spin = gpu_jobs_ > 0 && gpu_jobs_ == jobs_in_flight_;
  return {.progressed = any, .should_spin = should_spin, .poll_interval = PollInterval()};
}

nanoseconds CopyScheduler::PollInterval() const {
  uint64_t least = UINT64_MAX;
  for (size_t worker = 0; worker < load_.size(); ++worker) {
    if (!pool_.usable(static_cast<int>(worker))) continue;
    if (load_[worker].weight < kUnattendedBytesMin) return nanoseconds(0);
    least = std::min(least, load_[worker].weight);
  }
  if (least == UINT64_MAX) return nanoseconds(0);
  return nanoseconds(static_cast<int64_t>((least - kUnattendedBytesMin) / kCopyBytesPerNanosecond));
}

// Into a member: to clear so many of them takes longer than a poll.
bool CopyScheduler::TakeCompletions() {
  const size_t count = pool_.Poll(completions_);
  for (size_t i = 0; i < count; ++i) Complete(completions_[i]);
  return count > 0;
}

void CopyScheduler::Complete(const worker::Completion& completion) {
  const auto slot = static_cast<uint32_t>(completion.tag);
  if (slot >= jobs_.size()) return;
  Job& job = jobs_[slot];
  if (job.operation == nullptr || TagOf(slot, job.generation) != completion.tag) return;
  const Job done = std::exchange(job, Job{});
  job.generation = done.generation + 1;
  free_jobs_.push_back(slot);
  WorkerLoad& load = load_[static_cast<size_t>(done.worker)];
  load.weight -= done.weight;
  --load.jobs;
  --jobs_in_flight_;
  GpuCopyReason why = done.gpu_job.plan.reason;
  if (done.between_gpus) {
    --gpu_jobs_;
    const bool by_kernel = done.gpu_job.plan.means == worker::GpuMeans::kKernel;
    --(by_kernel ? load.kernel_jobs : load.engine_jobs);
    if (by_kernel && completion.ok && completion.means != worker::GpuMeans::kKernel) {
      why = GpuCopyReason::kNoKernels;
      done.operation->SetGpuReason(why);
    }
    const TimePoint now = options_.now();
    PlannerOf(done.gpu).Done(done.gpu_job, completion, now);
    NoteMeans(done.gpu, now);
  }
  const bool had_work = done.operation->HasWork();
  done.operation->Done(done.part, done.worker, completion, why);
  if (!had_work && done.operation->HasWork()) {  // a part came back from a dead worker
    waiting_[done.operation->priority()].For(KindOf(*done.operation)).push_front(done.operation);
  }
}

bool CopyScheduler::EndThoseWithoutWorkers() {
  if (waiting_.empty() || HasGpuWorkers()) return false;
  bool any = false;
  for (auto& [priority, level] : waiting_) {
    for (auto& [kind, queue] : level.queues) {
      if (kind.means == Class::kOfHost) continue;
      for (CopyOperation* const operation : std::exchange(queue, {})) {
        operation->Refuse(worker::NoGpuWorkers());
        any = true;
      }
    }
  }
  return any;
}

bool CopyScheduler::Feed() {
  bool any = EndThoseWithoutWorkers();
  passed_.assign(load_.size(), false);
  for (int worker = NextWorker(passed_); worker >= 0; worker = NextWorker(passed_)) {
    const bool fed = FeedWorker(worker);
    any |= fed;
    passed_[static_cast<size_t>(worker)] = !fed;  // another one may have room
  }
  return any;
}

int CopyScheduler::NextWorker(const std::vector<bool>& passed) const {
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

GpuCopyWork CopyScheduler::WorkOf(const CopyOperation& operation) const {
  const MovePlan& plan = operation.plan();
  return {plan.segments.copies(), plan.bytes, WorkersFor(operation.gpus())};
}

CopyScheduler::Kind CopyScheduler::KindOf(const CopyOperation& operation) const {
  if (!operation.on_gpus()) return {};
  if (operation.with_host()) return {Class::kHostAndGpu, {}, 0};
  const GpuCopyWork work = WorkOf(operation);
  // As Choose decides: a kernel of either GPU may copy, unless it loses by the costs of its GPU, or
  // that GPU has no worker. Where neither has one, the costs of both are asked.
  const std::vector<int>& gpus = operation.gpus();
  const auto has_worker = [&](int gpu) { return KernelWorker(gpu) >= 0; };
  const bool all = std::none_of(gpus.begin(), gpus.end(), has_worker);
  const bool for_engines = std::all_of(gpus.begin(), gpus.end(), [&](int gpu) {
    return (!all && !has_worker(gpu)) ||
           GpuCopyPlanner::IsForEngines(work, options_.costs_of(std::max(gpu, 0)));
  });
  const Class means = GpuCopyPlanner::IsFew(work) ? Class::kFewOfGpus
                      : for_engines               ? Class::kLargeOfGpus
                                                  : Class::kManyOfGpus;
  return {means, operation.gpus(), SizeOf(work.bytes, options_.small_bytes_max)};
}

CopyScheduler::Queue& CopyScheduler::Level::For(const Kind& kind) {
  for (auto& [of, queue] : queues) {
    if (of == kind) return queue;
  }
  // An empty one takes memory, and twice as much where it is moved to its place.
  return queues.emplace_back(std::piecewise_construct, std::tuple(kind), std::tuple()).second;
}

bool CopyScheduler::FeedWorker(int worker) {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Level& level = next->second;
    const size_t queues = level.queues.size();
    for (size_t i = 0; i < queues; ++i) {
      const size_t asked = (level.turn + i) % queues;
      auto& [kind, queue] = level.queues[asked];
      if (queue.empty() || !MayTake(kind, worker)) continue;
      const Posting posting = FeedFrom(queue, worker);
      if (posting == Posting::kNoRoom) return false;
      if (posting == Posting::kEnough) continue;
      level.turn = (asked + 1) % queues;
      return true;
    }
    const bool empty = std::all_of(level.queues.begin(), level.queues.end(),
                                   [](const auto& queue) { return queue.second.empty(); });
    next = empty ? waiting_.erase(next) : std::next(next);
  }
  return false;
}

// kEnough, too, when nothing waits.
CopyScheduler::Posting CopyScheduler::FeedFrom(Queue& queue, int worker) {
  while (!queue.empty() && !queue.front()->HasWork()) queue.pop_front();
  if (queue.empty()) return Posting::kEnough;
  CopyOperation* const first = queue.front();
  const Posting posting = first->between_gpus() ? PostGpuJob(first, Choose(*first, worker), queue)
                                                : PostJob(first, worker);
  if (posting != Posting::kPosted) return posting;
  if (first->HasWork() && first->KeepsTurn(options_.gpu_turn_bytes)) return posting;
  queue.pop_front();
  if (first->HasWork()) queue.push_back(first);
  return posting;
}

CopyScheduler::Posting CopyScheduler::PostJob(CopyOperation* operation, int worker) {
  const MovePlan& plan = operation->plan();
  const bool listed = operation->on_gpus();
  if (listed && IsForKernels(worker) && IsAnotherFree()) return Posting::kEnough;
  const uint64_t share = plan.bytes / (2 * std::max<size_t>(load_.size(), 1));
  const uint64_t bytes = std::min(std::max(share, kJobBytesMin), options_.job_bytes_max);
  size_t room = std::min(pool_.free_slots(worker), options_.job_segments_max);
  if (listed) room = std::min(room, pool_.free_places(worker));
  if (room == 0) return Posting::kEnough;
  builder_.Begin(plan, worker::GpuMeans::kCopyEngine, listed, room);
  const PlanPart part = operation->NextPart(room, bytes, &builder_);
  return PostPart(operation, worker, part, GpuCopyPlan());
}

CopyScheduler::Posting CopyScheduler::PostGpuJob(CopyOperation* operation, const GpuChoice& chosen,
                                                 const Queue& queue) {
  const MovePlan& plan = operation->plan();
  const auto& [choice, target] = chosen;
  const bool by_kernel = choice.means == worker::GpuMeans::kKernel;
  const WorkerLoad& load = load_[static_cast<size_t>(target)];
  if (by_kernel ? load.kernel_jobs >= choice.jobs_max
                : load.engine_jobs >= options_.engine_jobs_max) {
    return Posting::kEnough;
  }
  // A GPU's engines are at one copy of rows at a time, so one worker of it hands over a transfer
  // that is mostly rows.
  const bool mostly_rows = !by_kernel && operation->mostly_rows();
  if (mostly_rows && !IsForKernels(target)) return Posting::kEnough;
  // The engines' parts are the smaller the less is left, so that the workers end together; and who
  // copies rows has them done too soon to be given many small ones, where more waits behind them.
  const size_t workers = WorkersFor(operation->gpus());
  const size_t sharers = mostly_rows ? std::min(workers, operation->gpus().size()) : workers;
  const uint64_t shares = by_kernel ? 1 : 2 * sharers;
  const uint64_t left = mostly_rows ? BytesLeftIn(queue) : operation->bytes_left();
  const uint64_t most = mostly_rows ? kRowJobBytes : choice.job_bytes;
  const uint64_t bytes = std::min(std::max(left / shares, kGpuJobBytesMin), most);
  size_t segments = choice.job_segments;
  if (by_kernel) {  // the first jobs are short, so that the GPU begins early
    segments = SegmentsOf(plan, std::min(segments, kFirstKernelBlocks << std::min<size_t>(
                                                       load.kernel_jobs, kKernelSteps)));
  }
  const size_t room = std::min({pool_.free_slots(target), pool_.free_places(target), segments});
  if (room == 0) return Posting::kEnough;
  builder_.Begin(plan, choice.means, /*listed=*/true, room);
  const PlanPart part = operation->NextPart(room, bytes, &builder_);
  return PostPart(operation, target, part, choice);
}

CopyScheduler::Posting CopyScheduler::PostPart(CopyOperation* operation, int worker,
                                               const PlanPart& part, const GpuCopyPlan& gpu_plan) {
  if (part.begin == part.end) return Posting::kNoRoom;
  if (free_jobs_.empty()) {
    free_jobs_.push_back(static_cast<uint32_t>(jobs_.size()));
    jobs_.emplace_back();
  }
  const uint32_t slot = free_jobs_.back();
  Job& job = jobs_[slot];
  const uint64_t tag = TagOf(slot, job.generation);
  if (!pool_.Post(worker, tag, builder_.job())) return Posting::kNoRoom;
  free_jobs_.pop_back();
  const bool between_gpus = operation->between_gpus();
  const uint64_t weight = between_gpus ? part.bytes / options_.gpu_bytes_weigh : part.bytes;
  job = {operation,    job.generation,          worker, part, weight,
         between_gpus, workers_.gpu_of(worker), {}};
  WorkerLoad& load = load_[static_cast<size_t>(worker)];
  load.weight += weight;
  ++load.jobs;
  ++jobs_in_flight_;
  last_worker_ = worker;
  recent_.Posted(worker, options_.now());
  operation->Posted(part, worker);
  if (operation->on_gpus() && operation->with_host()) {
    operation->SetGpuReason(GpuCopyReason::kWithHost);
    recent_.PostedToAll(options_.now());
  }
  if (between_gpus) {
    ++gpu_jobs_;
    ++(gpu_plan.means == worker::GpuMeans::kKernel ? load.kernel_jobs : load.engine_jobs);
    const TimePoint now = options_.now();
    job.gpu_job = PlannerOf(job.gpu).Posted(gpu_plan, part.bytes, now);
    NoteMeans(job.gpu, now);
    const bool is_shared =
        gpu_plan.means != worker::GpuMeans::kKernel && gpu_plan.reason != GpuCopyReason::kFewBlocks;
    if (is_shared) recent_.PostedToAll(now);
    operation->SetGpuReason(gpu_plan.reason);
  }
  return Posting::kPosted;
}

void CopyScheduler::Forget(CopyOperation* operation) {
  for (auto& [priority, level] : waiting_) {
    for (auto& [kind, queue] : level.queues) std::erase(queue, operation);
  }
}

}  // namespace gantry::transport
