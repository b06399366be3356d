// Chooses how GPU memory is copied. On an idle GPU a kernel in one worker is fastest for small
// blocks; on a busy GPU it waits for its time slice. Copy engines, fed by all workers, do not
// disturb the GPU's computation. One planner per GPU that kernels may run on. Used by the driver.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "sidecar/plan/segment_list.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/gpu_copy_costs.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::transport {

struct GpuCopyPlan {
  worker::GpuMeans means = worker::GpuMeans::kCopyEngine;
  GpuCopyReason reason = GpuCopyReason::kWithHost;
  bool probe = false;  // a small job that tests whether a busy GPU still is
  uint64_t job_bytes = 0;
  size_t job_segments = 0;
  size_t jobs_max = 0;  // kernel jobs in flight
};

// The operator's restriction.
enum class GpuCopyPolicy { kAuto, kEngines, kKernel };

// The amount of work of a whole transfer.
struct GpuCopyWork {
  CopyCounts copies;
  uint64_t bytes = 0;
  size_t workers = 1;  // that feed copy engines for it
};

class GpuCopyPlanner {
 public:
  explicit GpuCopyPlanner(GpuCopyPolicy policy);

  // The costs of its GPU, whenever they may have changed. The fallback until then.
  void SetCosts(const worker::GpuCopyCosts& costs) { costs_ = costs; }

  // True when the engines copy so few blocks before a kernel would have started.
  static bool IsFew(const GpuCopyWork& work);
  // True when the workers feed the engines at full rate, whether the GPU is busy or not.
  static bool IsForEngines(const GpuCopyWork& work, const worker::GpuCopyCosts& costs);
  // The plan for copy engines, whether the GPU is busy or not.
  static GpuCopyPlan ByEngines(GpuCopyReason reason);
  // The longest rows, in bytes, for which strided copies beat this many workers' batches between
  // two busy GPUs. UINT64_MAX: no limit.
  static uint64_t RowBytesMax(size_t workers, const worker::GpuCopyCosts& costs);
  // True when engines will copy the next job, as far as is known.
  bool UsesEngines(TimePoint now) const;
  // Plans the transfer's next job.
  GpuCopyPlan Choose(const GpuCopyWork& work, TimePoint now) const;
  // A posted job, kept while it is in flight.
  struct Job {
    GpuCopyPlan plan;
    uint64_t bytes = 0;
  };
  Job Posted(const GpuCopyPlan& plan, uint64_t bytes, TimePoint now);
  void Done(const Job& job, const worker::Completion& completion, TimePoint now);

 private:
  enum class State { kIdle, kBusy, kProbed };  // kProbed: busy, and a kernel is testing it

  void Judge(bool slow, TimePoint now);
  bool IsSlow(const Job& job, nanoseconds taken) const;

  const GpuCopyPolicy policy_;
  worker::GpuCopyCosts costs_;
  State state_ = State::kIdle;
  TimePoint idle_since_;
  TimePoint idle_until_;  // until then it is known to be idle, not only assumed
  int quick_probes_ = 0;  // consecutive
  TimePoint probe_again_;
  nanoseconds probe_pause_;  // longer, the sooner an apparently idle GPU is busy again
  TimePoint no_kernels_until_;
  double best_rate_ = 0;  // of kernels, in bytes per nanosecond
  // Kernel jobs: bytes in flight, and since the first of them was posted.
  uint64_t in_flight_ = 0;
  TimePoint first_posted_;
  uint64_t moved_ = 0;
};

}  // namespace gantry::transport
