// Host memory to host memory on one node: both allocations are mapped in the copy workers, which
// copy. Keeps every worker supplied, highest priority first, equal ones in turn; what the ipc
// transport moves between GPUs, too, as the workers are the same. Owned by the engine's driver, but
// for Probe and CanReach.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "sidecar/transport/transport.h"
#include "sidecar/worker/copy_pool.h"

namespace gantry::transport {

class ShmOperation;

struct ShmOptions {
  uint64_t job_bytes_max = 512 * 1024;  // copied between two completions
  size_t job_segments_max = 128;
  uint64_t inflight_bytes_max = 8 * 1024 * 1024;  // per worker: bounds cancel and priority delay
  size_t inflight_jobs_max = 64;                  // per worker
  // Between GPUs a worker waits for each job's end, and the driver takes half a microsecond for
  // each segment: small jobs would leave the GPUs idle in between.
  uint64_t gpu_job_bytes_max = 64 * 1024 * 1024;
  size_t gpu_job_segments_max = 1024;
  // Bytes between GPUs count for less in what is in flight: they move faster by so much.
  uint64_t gpu_bytes_weigh = 16;
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

  // Segments [begin, end) of one operation, posted to one worker.
  struct Job {
    ShmOperation* operation = nullptr;  // null: the slot is free
    uint32_t generation = 0;
    int worker = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    uint64_t weight = 0;
    uint64_t bytes = 0;
    bool retried = false;
  };
  struct WorkerLoad {
    uint64_t weight = 0;  // bytes, as the limit of what is in flight counts them
    size_t jobs = 0;
  };
  using Queue = std::deque<ShmOperation*>;

  bool TakeCompletions();
  void Complete(const worker::Completion& completion);
  bool Feed();
  bool FeedWorker(int worker);
  // The idlest worker that takes another job and is not `passed`, or -1.
  int NextWorker(const std::vector<bool>& passed) const;
  bool PostJob(ShmOperation* operation, int worker);
  void Leave(ShmOperation* operation);

  const ShmOptions options_;
  worker::CopyPool& pool_;

  std::vector<WorkerLoad> load_;
  std::vector<Job> jobs_;
  std::vector<uint32_t> free_jobs_;
  // Operations with segments that are not posted yet, by falling priority.
  std::map<int, Queue, std::greater<>> waiting_;
  std::vector<uint64_t> finished_;  // tokens for the next Poll
  std::vector<bool> passed_;        // workers with no room for what comes next
  std::vector<worker::CopySegment> scratch_;
  int last_worker_ = 0;
};

}  // namespace gantry::transport
