// The copies that the scheduler posted lately, and the hints that follow from them: which workers
// to wake for the next transfer, and how its plan is made. The driver alone calls Posted,
// PostedToAll and SetUsesEngines; all other calls are thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lib/base/clock.h"
#include "sidecar/copy/copy_scheduler_options.h"
#include "sidecar/transport/copy_hints.h"
#include "sidecar/worker/channel/copy_workers.h"

namespace gantry::transport {

class RecentCopies final : public CopyHints {
 public:
  // `workers` outlives this.
  RecentCopies(const CopySchedulerOptions& options, worker::CopyWorkers& workers)
      : policy_(options.gpu_copies),
        now_(options.now),
        costs_of_(options.costs_of),
        workers_(workers) {}

  void Foresee() override;
  // Wakes the workers that will copy the plan between GPUs, as far as is known.
  void Expect(size_t named) override;
  RowLimits RowsOf(const std::vector<std::shared_ptr<const memory::MappedAllocation>>& local,
                   const std::vector<RemoteAllocation>& remote) const override;
  size_t GpuWorkers() const;  // workers with a context on a GPU

  void Posted(int worker, TimePoint now) {
    last_worker_.store(worker, std::memory_order_relaxed);
    last_posted_.store(now, std::memory_order_relaxed);
  }
  // A job that is no kernel's was posted to one of the workers that share its operation.
  void PostedToAll(TimePoint now) { fed_engines_.store(now, std::memory_order_relaxed); }
  // Whether copy engines will copy the next job of this GPU. REQUIRES gpu >= 0.
  void SetUsesEngines(int gpu, bool uses);

 private:
  // Adds the GPU's index to `gpus` unless it is there; false: the memory is on no GPU.
  bool AddGpuOf(const memory::MappedAllocation& allocation, std::vector<int>* gpus) const;
  // Whether copy engines, as far as is known, will copy between these GPUs: each that could have a
  // kernel copy is busy.
  bool EnginesWillCopy(const std::vector<int>& gpus) const;
  size_t GpuWorkersOn(const std::vector<int>& gpus) const;

  const GpuCopyPolicy policy_;
  TimePoint (*const now_)();
  const std::function<worker::GpuCopyCosts(int gpu)> costs_of_;
  worker::CopyWorkers& workers_;
  std::atomic<uint64_t> by_engines_{0};   // a bit for each of the first 64 GPUs
  std::atomic<TimePoint> fed_engines_{};  // when engines last had a job that workers share
  std::atomic<int> last_worker_ = 0;
  std::atomic<TimePoint> last_posted_{};
};

}  // namespace gantry::transport
