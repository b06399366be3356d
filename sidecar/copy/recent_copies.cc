#include "sidecar/copy/recent_copies.h"

#include <algorithm>

#include "sidecar/worker/process/row_copies.h"

namespace gantry::transport {
namespace {

constexpr int kGpusMax = 64;  // of by_engines_
// Planning so many blocks takes as long as waking up does.
constexpr size_t kLongPlan = 256;
// A worker looks for more jobs for so long by default.
constexpr microseconds kAwake{100};
// No worker is woken after so long without a job.
constexpr milliseconds kLately{1'000};
// Engines that had something for all workers will have it again.
constexpr milliseconds kFedLately{2'000};
// One copy of rows. A transfer of some GiB is cancelled, and shared between workers, by its copies.
constexpr uint64_t kRowsBytesMax = 4 << 20;
// Most rows of a transfer. Batches of longer ones are as fast.
constexpr uint64_t kMostRowBytesMax = 64 << 10;

}  // namespace

// The worker is the one that CopyScheduler::NextWorker begins with.
void RecentCopies::Foresee() {
  const auto since = now_() - last_posted_.load(std::memory_order_relaxed);
  if (since > kAwake && since < kLately) {
    workers_.WakeWorker(last_worker_.load(std::memory_order_relaxed));
  }
}

// Where kernels copy, other workers would only take processors from the threads that plan and ask:
// a thread that looks for work slows down the one beside it on the same core.
void RecentCopies::Expect(size_t named) {
  if (named < kLongPlan) return;
  const bool all = policy_ == GpuCopyPolicy::kEngines ||
                   by_engines_.load(std::memory_order_relaxed) != 0 ||
                   now_() - fed_engines_.load(std::memory_order_relaxed) < kFedLately;
  uint64_t seen = 0;  // the GPUs whose first worker was woken, which is the one for kernels
  for (int worker = 0; worker < workers_.worker_count(); ++worker) {
    const int gpu = workers_.gpu_of(worker);
    if (gpu < 0) continue;
    const uint64_t bit = gpu < kGpusMax ? uint64_t{1} << gpu : 0;
    if (all || (seen & bit) == 0) workers_.WakeWorker(worker);
    seen |= bit;
  }
}

// Copy engines take rows; copies with a side on the host go block by block through staging memory.
// A kernel's list of the same blocks is made several times as fast when they are not planned by
// rows. So plans have rows only where the GPUs were busy last.
RowLimits RecentCopies::RowsOf(
    const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
    const std::vector<RemoteAllocation>& remote) const {
  std::vector<int> gpus;
  for (const auto& one : local) {
    if (!AddGpuOf(*one, &gpus)) return {};
  }
  for (const RemoteAllocation& one : remote) {
    if (one.mapped == nullptr || !AddGpuOf(*one.mapped, &gpus)) return {};
  }
  if (!EnginesWillCopy(gpus)) return {};
  const size_t near = GpuWorkersOn(gpus);
  // Either GPU's engines may copy them, so that the one with the shorter rows decides.
  uint64_t row_bytes_max = kMostRowBytesMax;
  for (const int gpu : gpus) {
    row_bytes_max = std::min(
        row_bytes_max, GpuCopyPlanner::RowBytesMax(near > 0 ? near : GpuWorkers(), costs_of_(gpu)));
  }
  if (row_bytes_max == 0) return {};
  return {worker::kRowsMin, row_bytes_max, kRowsBytesMax, gpu::kRowPitchMax, worker::kRowBytesMax};
}

size_t RecentCopies::GpuWorkers() const {
  size_t workers = 0;
  for (int worker = 0; worker < workers_.worker_count(); ++worker) {
    workers += workers_.gpu_of(worker) >= 0 ? 1 : 0;
  }
  return workers;
}

void RecentCopies::SetUsesEngines(int gpu, bool uses) {
  if (gpu >= kGpusMax) return;
  const uint64_t bit = uint64_t{1} << gpu;
  const uint64_t noted = by_engines_.load(std::memory_order_relaxed);
  const uint64_t next = uses ? noted | bit : noted & ~bit;
  if (next != noted) by_engines_.store(next, std::memory_order_relaxed);
}

bool RecentCopies::AddGpuOf(const memory::MappedAllocation& allocation,
                            std::vector<int>* gpus) const {
  if (allocation.kind() != wire::MemoryKind::kGpu) return false;
  const int gpu = workers_.GpuPlace(allocation.gpu().device_uuid);
  if (std::find(gpus->begin(), gpus->end(), gpu) == gpus->end()) gpus->push_back(gpu);
  return true;
}

bool RecentCopies::EnginesWillCopy(const std::vector<int>& gpus) const {
  if (policy_ != GpuCopyPolicy::kAuto) return policy_ == GpuCopyPolicy::kEngines;
  uint64_t with_workers = 0;  // others have no kernels
  for (int worker = 0; worker < workers_.worker_count(); ++worker) {
    const int gpu = workers_.gpu_of(worker);
    if (gpu < 0 || std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) continue;
    if (gpu >= kGpusMax) return false;
    with_workers |= uint64_t{1} << gpu;
  }
  return with_workers != 0 &&
         (by_engines_.load(std::memory_order_relaxed) & with_workers) == with_workers;
}

size_t RecentCopies::GpuWorkersOn(const std::vector<int>& gpus) const {
  size_t workers = 0;
  for (int worker = 0; worker < workers_.worker_count(); ++worker) {
    const int gpu = workers_.gpu_of(worker);
    workers += gpu >= 0 && std::find(gpus.begin(), gpus.end(), gpu) != gpus.end() ? 1 : 0;
  }
  return workers;
}

}  // namespace gantry::transport
