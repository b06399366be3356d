// Host memory to host memory on one node: both allocations are mapped in the copy workers, which
// copy. Keeps every worker supplied, highest priority first, equal ones in turn, job by job; what
// the ipc transport moves between GPUs, too, in longer turns, as the workers are the same. Owned by
// the engine's driver, but for Probe, CanReach, RouseFor, Foresee and what says so.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "sidecar/copy/gpu_copy_planner.h"
#include "sidecar/copy/job_builder.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/channel/copy_pool.h"

namespace gantry::transport {

class ShmOperation;

struct ShmOptions {
  uint64_t job_bytes_max = 512 << 10;  // copied between two completions
  size_t job_segments_max = 128;
  uint64_t inflight_bytes_max = 8 << 20;  // per worker: bounds cancel and priority delay
  size_t inflight_jobs_max = 64;          // per worker
  // Of copy engines, per worker: it always has a next one, and what is left goes to whoever is
  // faster.
  size_t engine_jobs_max = 3;
  // Bytes between GPUs count for less in what is in flight: they move faster.
  uint64_t gpu_bytes_weigh = 64;
  // Between GPUs an operation posts so much in a row, so that several end one after the other, and
  // not all at the end, where each waits for whichever worker is last. It waits for the turns of
  // those of its own size: of up to so many bytes, of up to eight times as many, and so on.
  uint64_t gpu_turn_bytes = 512 << 20;
  uint64_t small_bytes_max = 16 << 20;
  GpuCopyPolicy gpu_copies = GpuCopyPolicy::kAuto;
  TimePoint (*now)() = &Clock::now;  // for tests
};

// Segments [begin, end) of one plan.
struct PlanPart {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint64_t bytes = 0;
  bool retried = false;
};

class ShmTransport final : public Transport {
 public:
  ShmTransport(ShmOptions options, worker::CopyPool& pool);
  ~ShmTransport() override;

  wire::Path path() const override { return wire::Path::kShm; }
  Status Probe() override;
  Status CanReach(const memory::MappedAllocation& local,
                  const RemoteAllocation& remote) const override;
  // Of GPU memory: all, and those with a context on one of these GPUs (places in the pool). Any
  // thread.
  size_t GpuWorkers() const;
  size_t GpuWorkersOn(const std::vector<int>& gpus) const;
  // Whether copy engines, as far as is known, will copy between these GPUs: each that could
  // have a kernel copy is busy. Any thread.
  bool EnginesWillCopy(const std::vector<int>& gpus) const;
  int GpuPlace(std::string_view uuid) const { return pool_.GpuPlace(uuid); }  // any thread
  bool HasGpuWorkers() const { return GpuWorkers() > 0; }
  // So much is about to be planned: wakes the workers that will copy it between GPUs, as far as is
  // known. Any thread.
  void RouseFor(size_t named) const;
  void Foresee() override;
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  // Its token goes to `attention`, which outlives the operation, instead of to who calls Poll.
  // Nothing of it is posted after `last_post`; who gave it stops the operation then.
  std::unique_ptr<ShmOperation> StartFor(std::shared_ptr<const MovePlan> plan, int priority,
                                         uint64_t token, std::vector<uint64_t>* attention,
                                         TimePoint last_post = TimePoint::max());
  bool Poll(std::vector<uint64_t>* attention) override;
  nanoseconds Unattended() const override;
  // Beside copies by processors the processors are better left to them.
  bool DevicesWork() const override { return gpu_jobs_ > 0 && gpu_jobs_ == jobs_in_flight_; }

 private:
  friend class ShmOperation;

  // Planning it takes as long as waking up does.
  static constexpr size_t kLongPlan = 256;
  // So long a worker looks for more by default; and nobody is roused who had none for so long.
  static constexpr microseconds kAwake{100};
  static constexpr milliseconds kLately{1'000};

  // A part of one operation, posted to one worker.
  struct Job {
    ShmOperation* operation = nullptr;  // null: the slot is free
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
  using Queue = std::deque<ShmOperation*>;
  // What else decides whether a worker takes an operation's next job.
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
  // Who copies the next part of an operation between GPUs, and how.
  struct GpuChoice {
    GpuCopyPlan plan;
    int worker = -1;
  };

  // What waits for a GPU when no worker has one, nor is being started for one that had.
  bool EndThoseWithoutWorkers();
  bool TakeCompletions();
  void Complete(const worker::Completion& completion);
  bool Feed();
  bool FeedWorker(int worker);
  Posting FeedFrom(Queue& queue, int worker);
  Kind KindOf(const ShmOperation& operation) const;
  GpuCopyWork WorkOf(const ShmOperation& operation) const;
  bool MayTake(const Kind& kind, int worker) const;
  // The idlest worker that takes another job and is not `passed`, or -1.
  int NextWorker(const std::vector<bool>& passed) const;
  Posting PostJob(ShmOperation* operation, int worker);
  Posting PostGpuJob(ShmOperation* operation, const GpuChoice& chosen, const Queue& queue);
  // What both end with.
  Posting PostPart(ShmOperation* operation, int worker, const PlanPart& part,
                   const GpuCopyPlan& gpu_plan);
  static uint64_t BytesLeftIn(const Queue& queue);
  // Whether it has its context on one of these GPUs, or no usable worker has, but on any.
  bool Reaches(int worker, const std::vector<int>& gpus) const;
  bool IsNear(int worker, const std::vector<int>& gpus) const;
  size_t WorkersFor(const std::vector<int>& gpus) const;  // at least 1
  GpuChoice Choose(const ShmOperation& operation, int worker);
  // The worker of a GPU whose kernels copy, or -1: always the same one, as kernels of several would
  // take turns. What it copies between a GPU and the host would make its kernels look as if they
  // had to wait.
  int KernelWorker(int gpu) const;
  bool IsForKernels(int worker) const { return worker == KernelWorker(pool_.gpu_of(worker)); }
  bool IsAnotherFree() const;  // for what is between a GPU and the host
  GpuCopyPlanner& PlannerOf(int gpu);
  void NoteMeans(int gpu, TimePoint now);  // for EnginesWillCopy
  // A job that is no kernel's was given out as to all workers: for RouseFor.
  void NoteShared(TimePoint now) { fed_engines_.store(now, std::memory_order_relaxed); }
  void Leave(ShmOperation* operation);

  const ShmOptions options_;
  worker::CopyPool& pool_;

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
  std::atomic<uint64_t> by_engines_{0};       // a bit for each of the first 64 GPUs
  std::atomic<TimePoint> fed_engines_{};      // when engines last had a job that workers share
  std::atomic<int> last_worker_ = 0;
  std::atomic<TimePoint> last_posted_{};
  size_t jobs_in_flight_ = 0;
  size_t gpu_jobs_ = 0;  // of these, between GPUs
};

}  // namespace gantry::transport
