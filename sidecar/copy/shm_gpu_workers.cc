// What ShmTransport asks of its workers: which of them are for the memory of which GPUs, and which
// means copy there. Threads as shm_transport.h has them.
#include <algorithm>
#include <optional>

#include "sidecar/copy/shm_operation.h"
#include "sidecar/copy/shm_transport.h"

namespace gantry::transport {
namespace {

constexpr int kGpusMax = 64;  // of by_engines_
// Engines that had something for all workers will have it again.
constexpr milliseconds kFedLately{2'000};
constexpr size_t kLookAheadMax = 16;  // operations

}  // namespace

bool ShmTransport::IsNear(int worker, const std::vector<int>& gpus) const {
  return pool_.usable(worker) &&
         std::find(gpus.begin(), gpus.end(), pool_.gpu_of(worker)) != gpus.end();
}

size_t ShmTransport::WorkersFor(const std::vector<int>& gpus) const {
  size_t workers = 0;
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    workers += pool_.usable(worker) && Reaches(worker, gpus) ? 1 : 0;
  }
  return std::max<size_t>(workers, 1);
}

size_t ShmTransport::GpuWorkers() const {
  size_t workers = 0;
  for (int worker = 0; worker < pool_.worker_count(); ++worker) {
    workers += pool_.gpu_of(worker) >= 0 ? 1 : 0;
  }
  return workers;
}

size_t ShmTransport::GpuWorkersOn(const std::vector<int>& gpus) const {
  size_t workers = 0;
  for (int worker = 0; worker < pool_.worker_count(); ++worker) {
    const int gpu = pool_.gpu_of(worker);
    workers += gpu >= 0 && std::find(gpus.begin(), gpus.end(), gpu) != gpus.end() ? 1 : 0;
  }
  return workers;
}

// What is between a GPU and the host is copied by the processor, too: the more of them the better.
bool ShmTransport::MayTake(const Kind& kind, int worker) const {
  if (kind.means == Class::kOfHost) return true;
  return kind.means == Class::kHostAndGpu ? pool_.gpu_of(worker) >= 0 : Reaches(worker, kind.gpus);
}

bool ShmTransport::Reaches(int worker, const std::vector<int>& gpus) const {
  if (pool_.gpu_of(worker) < 0) return false;
  if (IsNear(worker, gpus)) return true;
  for (int other = 0; other < static_cast<int>(load_.size()); ++other) {
    if (IsNear(other, gpus)) return false;
  }
  return true;  // it drives a copy between two others from outside
}

bool ShmTransport::IsAnotherFree() const {
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    if (pool_.usable(worker) && pool_.gpu_of(worker) >= 0 && !IsForKernels(worker)) return true;
  }
  return false;
}

int ShmTransport::KernelWorker(int gpu) const {
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    if (pool_.usable(worker) && pool_.gpu_of(worker) == gpu) return worker;
  }
  return -1;
}

GpuCopyPlanner& ShmTransport::PlannerOf(int gpu) {
  const auto place = static_cast<size_t>(std::max(gpu, 0));
  while (gpu_planners_.size() <= place) gpu_planners_.emplace_back(options_.gpu_copies);
  return gpu_planners_[place];
}

uint64_t ShmTransport::BytesLeftIn(const Queue& queue) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < std::min(queue.size(), kLookAheadMax); ++i) {
    bytes += queue[i]->HasWork() ? queue[i]->bytes_left() : 0;
  }
  return bytes;
}

void ShmTransport::NoteMeans(int gpu, TimePoint now) {
  if (gpu < 0 || gpu >= kGpusMax) return;
  const uint64_t bit = uint64_t{1} << gpu;
  const uint64_t noted = by_engines_.load(std::memory_order_relaxed);
  const uint64_t next = PlannerOf(gpu).UsesEngines(now) ? noted | bit : noted & ~bit;
  if (next != noted) by_engines_.store(next, std::memory_order_relaxed);
}

// Where kernels copy, the others would only take processors from who plans and from who asks: a
// thread that looks for work slows down the one beside it on the same core.
void ShmTransport::RouseFor(size_t named) const {
  if (named < kLongPlan) return;
  const bool all = options_.gpu_copies == GpuCopyPolicy::kEngines ||
                   by_engines_.load(std::memory_order_relaxed) != 0 ||
                   options_.now() - fed_engines_.load(std::memory_order_relaxed) < kFedLately;
  uint64_t seen = 0;  // the GPUs whose first worker was roused, which is the one for kernels
  for (int worker = 0; worker < pool_.worker_count(); ++worker) {
    const int gpu = pool_.gpu_of(worker);
    if (gpu < 0) continue;
    const uint64_t bit = gpu < kGpusMax ? uint64_t{1} << gpu : 0;
    if (all || (seen & bit) == 0) pool_.Rouse(worker);
    seen |= bit;
  }
}

bool ShmTransport::EnginesWillCopy(const std::vector<int>& gpus) const {
  if (options_.gpu_copies != GpuCopyPolicy::kAuto) {
    return options_.gpu_copies == GpuCopyPolicy::kEngines;
  }
  uint64_t with_workers = 0;  // others have no kernels
  for (int worker = 0; worker < pool_.worker_count(); ++worker) {
    const int gpu = pool_.gpu_of(worker);
    if (gpu < 0 || std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) continue;
    if (gpu >= kGpusMax) return false;
    with_workers |= uint64_t{1} << gpu;
  }
  return with_workers != 0 &&
         (by_engines_.load(std::memory_order_relaxed) & with_workers) == with_workers;
}

// A kernel of either GPU of the pair copies as fast as the other's: one that is idle does, before
// one that is to show whether it still is busy, before the copy engines.
ShmTransport::GpuChoice ShmTransport::Choose(const ShmOperation& operation, int worker) {
  const GpuCopyWork work = WorkOf(operation);
  const int own = pool_.gpu_of(worker);
  const TimePoint now = options_.now();
  std::optional<GpuChoice> probe;
  bool apart = false;  // a kernel would copy, but for the way to the memory
  std::vector<int> gpus = operation.gpus();
  if (!IsNear(worker, gpus)) gpus = {own};
  for (const int gpu : gpus) {
    const GpuChoice choice = {PlannerOf(gpu).Choose(work, now), KernelWorker(gpu)};
    if (choice.plan.means != worker::GpuMeans::kKernel || choice.worker < 0) continue;
    const bool reached =
        std::all_of(operation.gpus().begin(), operation.gpus().end(),
                    [&](int other) { return pool_.reaches(choice.worker, other); });
    if (!reached) {
      apart = true;
      continue;
    }
    if (!choice.plan.probe) return choice;
    if (!probe) probe = choice;
  }
  if (probe) return *probe;
  if (apart) return {GpuCopyPlanner::ByEngines(GpuCopyReason::kNoPeerAccess), worker};
  return {PlannerOf(own).Choose(work, now), worker};
}

}  // namespace gantry::transport
