// The scheduler of all copy workers: keeps each supplied with jobs. Operations with a higher
// priority go first. Equal ones take turns job by job; operations between GPUs take longer turns.
// The shm and ipc transports and the staged copies start operations. Used by the driver, except
// hints and HasGpuWorkers, which are thread-safe.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "sidecar/copy/copy_scheduler_options.h"
#include "sidecar/copy/gpu_copy_planner.h"
#include "sidecar/copy/job_builder.h"
#include "sidecar/copy/recent_copies.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/copy_workers.h"

namespace gantry::transport {

class CopyOperation;

// Segments [begin, end) of one plan.
struct PlanPart {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint64_t bytes = 0;
  bool retried = false;
};

class CopyScheduler {
 public:
  // One pool implements both interfaces and outlives this.
  CopyScheduler(const CopySchedulerOptions& options, worker::CopyPool& pool,
                worker::CopyWorkers& workers);
  CopyScheduler(const CopyScheduler&) = delete;
  CopyScheduler& operator=(const CopyScheduler&) = delete;

  // Whether a worker can copy GPU memory.
  bool HasGpuWorkers() const { return recent_.GpuWorkers() > 0; }
  CopyHints& hints() { return recent_; }

  // See Transport::Start.
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token);
  // Appends the token to `ready_tokens`, which outlives the operation, instead of reporting it in
  // Poll. Posts nothing of the operation after `last_post`; the caller stops it then.
  std::unique_ptr<CopyOperation> StartFor(std::shared_ptr<const MovePlan> plan, int priority,
                                          uint64_t token, std::vector<uint64_t>* ready_tokens,
                                          TimePoint last_post = TimePoint::max());
  // See Transport::Poll.
  PollOutcome Poll(std::vector<uint64_t>* ready_tokens);

 private:
  friend class CopyOperation;

  // A part of one operation, posted to one worker.
  struct Job {
    CopyOperation* operation = nullptr;  // null: the slot is free
    uint32_t generation = 0;
    int worker = 0;
    PlanPart part;
    uint64_t weight = 0;
    bool between_gpus = false;
    int gpu = -1;  // of its worker, then
    GpuCopyPlanner::Job gpu_job;
  };
  struct WorkerLoad {
    uint64_t weight = 0;  // bytes, as the limit of what is in flight counts them
    size_t jobs = 0;
    size_t engine_jobs = 0;  // of these, between GPUs
    size_t kernel_jobs = 0;
  };
  enum class Posting { kPosted, kNoRoom, kEnough };  // kEnough: for this operation, for now
  using Queue = std::deque<CopyOperation*>;
  // An operation's class also decides whether a worker takes its next job.
  enum class Class { kOfHost, kFewOfGpus, kManyOfGpus, kLargeOfGpus, kHostAndGpu };
  struct Kind {
    Class means = Class::kOfHost;
    std::vector<int> gpus;
    int size = 0;  // between GPUs: 0 for small ones, one more for each eight times as large
    bool operator==(const Kind&) const = default;
  };
  // Operations of one priority: what holds for the first of a queue holds for all of it.
  struct Level {
    std::vector<std::pair<Kind, Queue>> queues;  // few, as pairs of GPUs are
    size_t turn = 0;                             // the queue that is asked first
    Queue& For(const Kind& kind);
  };
  // The worker that copies the next part of an operation between GPUs, and the plan of that.
  struct GpuChoice {
    GpuCopyPlan plan;
    int worker = -1;
  };

  // How long the workers have enough to do, as PollOutcome has it.
  nanoseconds PollInterval() const;
  // Ends all operations that wait for a GPU, when no worker has one or is being started again for
  // one. Returns whether any ended.
  bool EndThoseWithoutWorkers();
  bool TakeCompletions();
  void Complete(const worker::Completion& completion);
  bool Feed();
  bool FeedWorker(int worker);
  Posting FeedFrom(Queue& queue, int worker);
  Kind KindOf(const CopyOperation& operation) const;
  GpuCopyWork WorkOf(const CopyOperation& operation) const;
  bool MayTake(const Kind& kind, int worker) const;
  // The idlest worker that takes another job and is not `passed`, or -1.
  int NextWorker(const std::vector<bool>& passed) const;
  Posting PostJob(CopyOperation* operation, int worker);
  Posting PostGpuJob(CopyOperation* operation, const GpuChoice& chosen, const Queue& queue);
  // The common end of PostJob and PostGpuJob.
  Posting PostPart(CopyOperation* operation, int worker, const PlanPart& part,
                   const GpuCopyPlan& gpu_plan);
  static uint64_t BytesLeftIn(const Queue& queue);
  // Whether it has its context on one of these GPUs, or no usable worker has, but on any.
  bool Reaches(int worker, const std::vector<int>& gpus) const;
  bool IsNear(int worker, const std::vector<int>& gpus) const;
  size_t WorkersFor(const std::vector<int>& gpus) const;  // at least 1
  GpuChoice Choose(const CopyOperation& operation, int worker);
  // The worker of a GPU whose kernels copy, or -1: always the same one, as kernels of several would
  // take turns. If it also copied between a GPU and the host, its kernels would seem to wait.
  int KernelWorker(int gpu) const;
  bool IsForKernels(int worker) const { return worker == KernelWorker(workers_.gpu_of(worker)); }
  bool IsAnotherFree() const;  // for what is between a GPU and the host
  GpuCopyPlanner& PlannerOf(int gpu);
  void NoteMeans(int gpu, TimePoint now);  // for recent_
  void Forget(CopyOperation* operation);

  const CopySchedulerOptions options_;
  worker::CopyPool& pool_;
  worker::CopyWorkers& workers_;
  RecentCopies recent_;

  std::vector<WorkerLoad> load_;
  std::vector<Job> jobs_;
  std::vector<uint32_t> free_jobs_;
  // Operations with segments that are not posted yet, by falling priority.
  std::map<int, Level, std::greater<>> waiting_;
  std::vector<uint64_t> finished_;                  // tokens for the next Poll
  std::array<worker::Completion, 64> completions_;  // of one poll
  std::vector<bool> passed_;                        // workers with no room for what comes next
  JobBuilder builder_;
  std::vector<GpuCopyPlanner> gpu_planners_;  // by GPU, as far as there was need
  int last_worker_ = 0;
  size_t jobs_in_flight_ = 0;
  size_t gpu_jobs_ = 0;  // of these, between GPUs
};

}  // namespace gantry::transport
