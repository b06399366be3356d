// Host memory to host memory on one node: both allocations are mapped in the copy workers, which
// copy. Keeps every worker supplied, highest priority first, equal ones in turn; what the ipc
// transport moves between GPUs, too, as the workers are the same. Owned by the engine's driver, but
// for Probe and CanReach.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sidecar/transport/gpu_copy_planner.h"
#include "sidecar/transport/job_builder.h"
#include "sidecar/transport/transport.h"
#include "sidecar/worker/copy_pool.h"

namespace gantry::transport {

class ShmOperation;

struct ShmOptions {
  uint64_t job_bytes_max = 512 * 1024;  // copied between two completions
  size_t job_segments_max = 128;
  uint64_t inflight_bytes_max = 8 * 1024 * 1024;  // per worker: bounds cancel and priority delay
  size_t inflight_jobs_max = 64;                  // per worker
  // Of GPUs, per worker. Kernels follow each other; the copy engines take turns between the
  // workers' contexts, and each turn is to find much to do.
  size_t kernel_jobs_max = 4;
  size_t engine_jobs_max = 16;
  // Bytes between GPUs count for less in what is in flight: they move faster.
  uint64_t gpu_bytes_weigh = 64;
  GpuCopyPolicy gpu_copies = GpuCopyPolicy::kAuto;
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
  std::unique_ptr<Operation> Start(std::shared_ptr<const MovePlan> plan, int priority,
                                   uint64_t token) override;
  bool Poll(std::vector<uint64_t>* attention) override;
  nanoseconds Unattended() const override;

 private:
  friend class ShmOperation;

  // A part of one operation, posted to one worker.
  struct Job {
    ShmOperation* operation = nullptr;  // null: the slot is free
    uint32_t generation = 0;
    int worker = 0;
    PlanPart part;
    uint64_t weight = 0;
    bool between_gpus = false;
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
  // Operations of one priority, by what else decides whether a worker takes their next job: what
  // holds for the first of a queue holds for all of it.
  enum Class : size_t { kOfHost, kFewOfGpus, kManyOfGpus, kHostAndGpu, kClasses };
  struct Level {
    std::array<Queue, kClasses> queues;
    size_t turn = 0;  // the class that is asked first
  };

  bool TakeCompletions();
  void Complete(const worker::Completion& completion);
  bool Feed();
  bool FeedWorker(int worker);
  Posting FeedFrom(Queue& queue, int worker);
  static Class ClassOf(const ShmOperation& operation);
  // The idlest worker that takes another job and is not `passed`, or -1.
  int NextWorker(const std::vector<bool>& passed) const;
  Posting PostJob(ShmOperation* operation, int worker);
  Posting PostGpuJob(ShmOperation* operation, int worker);
  // What both end with.
  Posting PostPart(ShmOperation* operation, int worker, const PlanPart& part,
                   const GpuCopyPlan& gpu_plan);
  // The worker whose kernels copy: always the same one, as kernels of several would take turns.
  // What it copies between a GPU and the host would make its kernels look as if they had to wait.
  int KernelWorker() const;
  bool IsAnotherUsable(int worker) const;
  void Leave(ShmOperation* operation);

  const ShmOptions options_;
  worker::CopyPool& pool_;

  std::vector<WorkerLoad> load_;
  std::vector<Job> jobs_;
  std::vector<uint32_t> free_jobs_;
  // Operations with segments that are not posted yet, by falling priority.
  std::map<int, Level, std::greater<>> waiting_;
  std::vector<uint64_t> finished_;  // tokens for the next Poll
  std::vector<bool> passed_;        // workers with no room for what comes next
  JobBuilder builder_;
  GpuCopyPlanner gpu_planner_;
  int last_worker_ = 0;
};

}  // namespace gantry::transport
