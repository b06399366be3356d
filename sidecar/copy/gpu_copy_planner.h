// How memory of GPUs is copied: by a kernel in one worker, which is the fastest for small blocks
// while the GPU does nothing else, and waits for its turn while it does, or by copy engines, which
// the workers feed side by side and which disturb nobody. One for each GPU that kernels may run on.
// Owned by the engine's driver.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "sidecar/plan/segment_list.h"
#include "sidecar/worker/channel/copy_pool.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::transport {

struct GpuCopyPlan {
  worker::GpuMeans means = worker::GpuMeans::kCopyEngine;
  GpuCopyReason reason = GpuCopyReason::kWithHost;
  bool probe = false;  // one small job that tells whether a busy GPU still is
  uint64_t job_bytes = 0;
  size_t job_segments = 0;
  size_t jobs_max = 0;  // in flight at a time, of kernels
};

// What may be chosen: an operator's say.
enum class GpuCopyPolicy { kAuto, kEngines, kKernel };

// What is to be copied: a transfer as a whole.
struct GpuCopyWork {
  CopyCounts copies;
  uint64_t bytes = 0;
  size_t workers = 1;  // that feed copy engines for it
};

class GpuCopyPlanner {
 public:
  explicit GpuCopyPlanner(GpuCopyPolicy policy);

  // So few blocks that the engines copy them before a kernel would have begun.
  static bool IsFew(const GpuCopyWork& work);
  // Whether so many workers feed the engines as fast as these copy, whatever the GPU does.
  static bool IsForEngines(const GpuCopyWork& work);
  // Whatever the GPU does.
  static GpuCopyPlan ByEngines(GpuCopyReason reason);
  // The longest rows of which the engines of a pair of busy GPUs copy more than so many workers
  // hand over as batches.
  static uint64_t RowBytesMax(size_t workers);
  // Whether engines are to copy what comes next, as far as is known.
  bool UsesEngines(TimePoint now) const;
  // For the next job of the transfer.
  GpuCopyPlan Choose(const GpuCopyWork& work, TimePoint now) const;
  // What was planned and posted, for as long as it is in flight.
  struct Job {
    GpuCopyPlan plan;
    uint64_t bytes = 0;
  };
  Job Posted(const GpuCopyPlan& plan, uint64_t bytes, TimePoint now);
  void Done(const Job& job, const worker::Completion& completion, TimePoint now);

 private:
  enum class State { kIdle, kBusy, kProbed };  // kProbed: busy, and a kernel tries it again

  void Judge(bool slow, TimePoint now);
  bool IsSlow(const Job& job, nanoseconds taken) const;

  const GpuCopyPolicy policy_;
  State state_ = State::kIdle;
  TimePoint idle_since_;
  TimePoint idle_until_;  // without another kernel it is only supposed to be
  int quick_probes_ = 0;  // in a row
  TimePoint probe_again_;
  nanoseconds probe_pause_;  // longer, the sooner a GPU that seemed idle is busy again
  TimePoint no_kernels_until_;
  double best_rate_;  // of kernels: bytes in a nanosecond
  // Of kernels in flight; and from when there were some until there are none.
  uint64_t in_flight_ = 0;
  TimePoint first_posted_;
  uint64_t moved_ = 0;
};

}  // namespace gantry::transport
