// One place in the pool: its ring, which outlives the processes that serve it, and the process that
// does so now. State, statistics and the process are thread-safe; the rest is the engine's.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/mutex.h"
#include "sidecar/worker/channel/shared_block.h"
#include "sidecar/worker/channel/worker_ring.h"
#include "sidecar/worker/pool/worker_process.h"

namespace gantry::worker {

struct WorkerPoolOptions {
  int workers = 2;
  int gpu_workers = -1;  // how many of them have a GPU's context; -1: as many as pay
  std::string executable = "/proc/self/exe";
  std::string log_level = "info";
  microseconds spin{100};  // before the engine or a worker sleeps
  milliseconds start_timeout_ms{30'000};
  milliseconds map_timeout_ms{30'000};
  milliseconds map_lag_ms{2'000};  // behind another worker, until one counts as hung
  milliseconds restart_backoff_min_ms{10};
  milliseconds restart_backoff_max_ms{10'000};
  // Until a GPU that refused a worker its context is asked again, the longer the more often it did.
  milliseconds gpu_retry_min_ms{60'000};
  milliseconds gpu_retry_max_ms{600'000};
};

// The life of a slot: kStarting, kUsable, kEnding (when told to, or straight on), kReaped, and,
// once the engine has completed its jobs, kSettled until the next start. A worker that dies in
// kStarting has had no jobs and goes to kSettled at once.
enum class WorkerState : int {
  kStarting,  // not ready, or its mappings are not complete
  kUsable,
  kEnding,   // was told to die
  kReaped,   // dead for certain; the engine has yet to complete its jobs
  kSettled,  // waits for the next start
};
std::string_view NameOf(WorkerState state);

// For the status page and the metrics.
struct WorkerStatus {
  int index = 0;
  pid_t pid = 0;  // 0 while there is none
  WorkerState state = WorkerState::kStarting;
  uint64_t restarts = 0;
  std::string gpu;  // UUID of the one that its context is on; empty: it has none
  std::vector<std::string> gpus_reached;  // UUIDs, its own among them
  uint64_t gpu_free_bytes = 0;            // when it had its context
  uint64_t gpu_bytes = 0;
  std::string no_gpu_because;
  bool asks_for_gpu = false;  // it was refused a context, and asks again
  uint64_t mappings = 0;
  uint64_t maps_succeeded = 0;  // attempts to map an allocation
  uint64_t maps_failed = 0;
  uint64_t jobs_done = 0;
  uint64_t jobs_lost = 0;
  std::string last_exit;  // of the worker before; empty at first
};

// A worker's GPU among those of the pool.
struct GpuHome {
  static constexpr int kPlaces = 64;  // further ones count as not reached
  int place = -1;                     // -1: it has none
  uint64_t reached = 0;               // places whose memory its kernels may follow, a bit each
  gpu::MemoryAmount memory;           // when it had its context
};

struct WorkerSlot {
  WorkerSlot(int index_in, SharedBlock ring_block_in)
      : index(index_in),
        ring_block(std::move(ring_block_in)),
        ring(InitializeRing(ring_block.data())) {}

  // The process that serves the slot, or null. Whoever holds it may use its descriptors.
  std::shared_ptr<WorkerProcess> process() const EXCLUDES(mutex);
  // Starts a life of the slot, and ends the start of it.
  void SetProcess(std::shared_ptr<WorkerProcess> process) EXCLUDES(mutex);
  void CountMap(bool succeeded) { ++(succeeded ? maps_succeeded : maps_failed); }
  // The worker's GPU, or none and why.
  void SetGpu(const GpuHome& home, const Status& why_none) EXCLUDES(mutex);
  // False when the process has died meanwhile.
  bool BecomeUsable(const WorkerProcess& process) EXCLUDES(mutex);
  // A usable worker takes no more work and dies; in any other state nothing happens: false.
  bool End() EXCLUDES(mutex);
  // The process was reaped. True when it had become usable: the engine has jobs to settle.
  bool SetReaped(std::string how) EXCLUDES(mutex);

  const int index;
  const SharedBlock ring_block;
  std::atomic<WorkerState> state = WorkerState::kSettled;
  // Place of its GPU among the pool's; -1: none. Set before it is usable; while another process
  // takes its place, that of the one before.
  std::atomic<int> gpu = -1;
  std::atomic<uint64_t> gpu_reached = 0;  // as GpuHome::reached
  std::atomic<bool> asks_for_gpu = false;
  // Since its GPU's driver last answered, processes that ended by themselves or hung before they
  // greeted.
  std::atomic<int> lost_before_greeting = 0;
  std::atomic<uint64_t> restarts = 0;
  std::atomic<uint64_t> mapped = 0;  // now
  std::atomic<uint64_t> maps_succeeded = 0;
  std::atomic<uint64_t> maps_failed = 0;
  std::atomic<uint64_t> jobs_done = 0;
  std::atomic<uint64_t> jobs_lost = 0;

  // The driver's.
  PoolRingEnd ring;
  std::deque<uint64_t> in_flight;  // tags, in the order in which the worker completes them
  bool distrusted = false;         // wrote nonsense into the ring, and is being replaced

  mutable Mutex mutex;
  std::shared_ptr<WorkerProcess> current GUARDED_BY(mutex);
  std::string last_exit GUARDED_BY(mutex);
  std::string no_gpu_because GUARDED_BY(mutex);
  gpu::MemoryAmount gpu_memory GUARDED_BY(mutex);
};

}  // namespace gantry::worker
