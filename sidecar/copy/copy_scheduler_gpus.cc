// CopyScheduler's choice of workers and means for the memory of GPUs. Used by the driver.
#include <algorithm>
#include <optional>

#include "sidecar/copy/copy_operation.h"
#include "sidecar/copy/copy_scheduler.h"

namespace gantry::transport {
namespace {

constexpr size_t kLookAheadMax = 16;  // operations

}  // namespace

bool CopyScheduler::IsNear(int worker, const std::vector<int>& gpus) const {
  return pool_.usable(worker) &&
         std::find(gpus.begin(), gpus.end(), workers_.gpu_of(worker)) != gpus.end();
}

size_t CopyScheduler::WorkersFor(const std::vector<int>& gpus) const {
  size_t workers = 0;
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    workers += pool_.usable(worker) && Reaches(worker, gpus) ? 1 : 0;
  }
  return std::max<size_t>(workers, 1);
}

// Copies between a GPU and the host need the processor, too: the more workers the better.
bool CopyScheduler::MayTake(const Kind& kind, int worker) const {
  if (kind.means == Class::kOfHost) return true;
  return kind.means == Class::kHostAndGpu ? workers_.gpu_of(worker) >= 0
                                          : Reaches(worker, kind.gpus);
}

bool CopyScheduler::Reaches(int worker, const std::vector<int>& gpus) const {
  if (workers_.gpu_of(worker) < 0) return false;
  if (IsNear(worker, gpus)) return true;
  for (int other = 0; other < static_cast<int>(load_.size()); ++other) {
    if (IsNear(other, gpus)) return false;
  }
  return true;  // it drives a copy between two others from outside
}

bool CopyScheduler::IsAnotherFree() const {
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    if (pool_.usable(worker) && workers_.gpu_of(worker) >= 0 && !IsForKernels(worker)) return true;
  }
  return false;
}

int CopyScheduler::KernelWorker(int gpu) const {
  for (int worker = 0; worker < static_cast<int>(load_.size()); ++worker) {
    if (pool_.usable(worker) && workers_.gpu_of(worker) == gpu) return worker;
  }
  return -1;
}

GpuCopyPlanner& CopyScheduler::PlannerOf(int gpu) {
  const auto place = static_cast<size_t>(std::max(gpu, 0));
  while (gpu_planners_.size() <= place) gpu_planners_.emplace_back(options_.gpu_copies);
  GpuCopyPlanner& planner = gpu_planners_[place];
  planner.SetCosts(options_.costs_of(static_cast<int>(place)));
  return planner;
}

uint64_t CopyScheduler::BytesLeftIn(const Queue& queue) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < std::min(queue.size(), kLookAheadMax); ++i) {
    bytes += queue[i]->HasWork() ? queue[i]->bytes_left() : 0;
  }
  return bytes;
}

void CopyScheduler::NoteMeans(int gpu, TimePoint now) {
  if (gpu >= 0) recent_.SetUsesEngines(gpu, PlannerOf(gpu).UsesEngines(now));
}

// A kernel of either GPU of the pair copies as fast as the other's: one that is idle does, before
// one that is to show whether it still is busy, before the copy engines.
CopyScheduler::GpuChoice CopyScheduler::Choose(const CopyOperation& operation, int worker) {
  const GpuCopyWork work = WorkOf(operation);
  const int own = workers_.gpu_of(worker);
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
                    [&](int other) { return workers_.reaches(choice.worker, other); });
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
