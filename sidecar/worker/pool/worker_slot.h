// One slot of the pool: its ring, which outlives the processes that serve it, and the current
// process. State, statistics and the process are thread-safe; the driver uses the rest.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/channel/gpu_copy_costs.h"
#include "sidecar/worker/channel/shared_block.h"
#include "sidecar/worker/channel/worker_ring.h"
#include "sidecar/worker/pool/worker_process.h"

namespace gantry::worker {

struct WorkerPoolOptions {
  int workers = 2;
  int gpu_workers = -1;  // workers with a GPU context; -1: chosen by the number of GPUs
  std::string executable = "/proc/self/exe";
  std::string log_level = "info";
  microseconds spin{100};  // polling before the engine or a worker sleeps
  milliseconds start_timeout_ms{30'000};
  milliseconds map_timeout_ms{30'000};
  // Delay behind another worker, after which a worker counts as hung.
  milliseconds map_lag_ms{2'000};
  milliseconds restart_backoff_min_ms{10};
  milliseconds restart_backoff_max_ms{10'000};
  // Delay before a GPU that refused a context is asked again; it grows with each refusal.
  milliseconds gpu_retry_min_ms{60'000};
  milliseconds gpu_retry_max_ms{600'000};
  memory::Unsealed unsealed = memory::Unsealed::kRefused;
  // The first worker of each GPU measures the costs of copies that are not set.
  bool measures_costs = false;
  GpuCosts costs;
};

// States of a slot: kStarting, kUsable, kEnding (optional), kReaped, kSettled, then kStarting
// again. A slot is settled once the engine has completed its lost jobs. A worker that dies in
// kStarting has no jobs, so it goes to kSettled at once.
enum class WorkerState : int {
  kStarting,  // not ready, or mappings incomplete
  kUsable,
  kEnding,   // was told to exit
  kReaped,   // reaped; the engine has yet to complete its jobs
  kSettled,  // waiting for the next start
};
std::string_view NameOf(WorkerState state);

// For the status page and the metrics.
struct WorkerStatus {
  int index = 0;
  pid_t pid = 0;  // 0 while there is none
  WorkerState state = WorkerState::kStarting;
  uint64_t restarts = 0;
  std::string gpu;                        // UUID of the GPU with its context; empty: none
  std::vector<std::string> gpus_reached;  // UUIDs, including its own
  uint64_t gpu_free_bytes = 0;            // measured when it got its context
  uint64_t gpu_bytes = 0;
  std::string no_gpu_because;
  bool asks_for_gpu = false;  // its GPU refused a context; it will try again
  uint64_t mappings = 0;
  uint64_t maps_succeeded = 0;  // attempts to map an allocation
  uint64_t maps_failed = 0;
  uint64_t jobs_done = 0;
  uint64_t jobs_lost = 0;
  std::string last_exit;  // how the previous worker ended; empty at first
};

// A worker's GPU, as an index among the pool's GPUs.
struct WorkerGpu {
  static constexpr int kPlaces = 64;  // further ones count as not reached
  int place = -1;                     // index; -1: none
  uint64_t reached = 0;               // bit mask of GPUs whose memory its kernels may access
  gpu::MemoryAmount memory;           // measured when it got its context
};

struct WorkerSlot {
  WorkerSlot(int index_in, SharedBlock ring_block_in)
      : index(index_in),
        ring_block(std::move(ring_block_in)),
        ring(InitializeRing(ring_block.data())) {}

  // The process that serves the slot, or null. A holder may use its descriptors.
  std::shared_ptr<WorkerProcess> process() const EXCLUDES(mutex);
  // Starts a new life of the slot with this process: its state becomes kStarting.
  void SetProcess(std::shared_ptr<WorkerProcess> process) EXCLUDES(mutex);
  void CountMap(bool succeeded) { ++(succeeded ? maps_succeeded : maps_failed); }
  // Records the worker's GPU, or why it has none.
  void SetGpu(const WorkerGpu& worker_gpu, const Status& why_none) EXCLUDES(mutex);
  // Returns false when the process has died meanwhile.
  bool BecomeUsable(const WorkerProcess& process) EXCLUDES(mutex);
  // Stops a usable worker from taking work and kills it. In any other state does nothing and
  // returns false.
  bool End() EXCLUDES(mutex);
  // Records that the process was reaped. Returns true when it had been usable: the engine must
  // complete its jobs.
  bool SetReaped(std::string how) EXCLUDES(mutex);

  const int index;
  const SharedBlock ring_block;
  std::atomic<WorkerState> state = WorkerState::kSettled;
  // Index of its GPU in the pool; -1: none. Set before the worker becomes usable. During a restart
  // it is the predecessor's.
  std::atomic<int> gpu = -1;
  std::atomic<uint64_t> gpu_reached = 0;  // see WorkerGpu::reached
  std::atomic<bool> asks_for_gpu = false;
  // Processes that exited or hung before their greeting, since the GPU driver last responded.
  std::atomic<int> lost_before_greeting = 0;
  std::atomic<uint64_t> restarts = 0;
  std::atomic<uint64_t> mapped = 0;  // current number of mappings
  std::atomic<uint64_t> maps_succeeded = 0;
  std::atomic<uint64_t> maps_failed = 0;
  std::atomic<uint64_t> jobs_done = 0;
  std::atomic<uint64_t> jobs_lost = 0;

  // These three are used by the driver.
  PoolRingEnd ring;
  std::deque<uint64_t> in_flight;  // tags, in the worker's order of completion
  bool distrusted = false;         // wrote invalid data into the ring; being replaced

  mutable Mutex mutex;
  std::shared_ptr<WorkerProcess> current GUARDED_BY(mutex);
  std::string last_exit GUARDED_BY(mutex);
  std::string no_gpu_because GUARDED_BY(mutex);
  gpu::MemoryAmount gpu_memory GUARDED_BY(mutex);
};

}  // namespace gantry::worker
