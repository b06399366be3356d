#include "sidecar/copy/gpu_copy_planner.h"

#include <algorithm>

namespace gantry::transport {
namespace {

using worker::GpuCopyCosts;
using worker::GpuMeans;

constexpr uint64_t kKernelJobBytes = 64 << 20;
constexpr size_t kKernelJobSegments = 8192;
constexpr size_t kKernelJobsMax = 4;
constexpr size_t kSupposedJobsMax = 2;  // while the GPU is only supposed to be idle
constexpr uint64_t kProbeBytes = 1 << 20;
// What a copy engine finds at each turn of a worker's context; more begins too late.
constexpr uint64_t kEngineJobBytes = 32 << 20;
constexpr size_t kEngineJobSegments = 1024;

// Where processors are slow a block takes longer: so much more has to be fed before a kernel is not
// even tried.
constexpr double kEnginesMargin = 1.25;
// Rows whose bytes take so many times as long as the row itself leave nothing of the link to
// batches: 30 KiB with the fallback's costs.
constexpr double kFillsLink = 3.654;
// Blocks; a copy of rows takes as long as so many.
constexpr uint64_t kFewBlocks = 8;
constexpr uint64_t kBlocksOfRows = 8;

// The share of an idle GPU's rate that a kernel has to reach until one was faster.
constexpr double kSlowShare = 200.0 / 375;
constexpr double kSlowFactor = 2;
// A gap in what others compute looks like an idle GPU.
constexpr int kQuickProbes = 3;
constexpr milliseconds kIdleFor{50};
constexpr uint64_t kRateBytesMin = 8 << 20;
// A worker without kernels may be replaced by one that has them.
constexpr milliseconds kKernelsAgain{10'000};
constexpr milliseconds kProbePauseMin{5};  // as it may have been something else
constexpr milliseconds kProbePauseMax{2'000};

// Bytes in a nanosecond.
double KernelRate(const GpuCopyCosts& costs) {
  return static_cast<double>(costs.kernel_mb_s) / 1e3;
}

GpuCopyPlan ByKernel(GpuCopyReason reason, bool probe, size_t jobs_max = kKernelJobsMax) {
  return {GpuMeans::kKernel,  reason,  probe, probe ? kProbeBytes : kKernelJobBytes,
          kKernelJobSegments, jobs_max};
}

}  // namespace

GpuCopyPlanner::GpuCopyPlanner(GpuCopyPolicy policy)
    : policy_(policy), probe_pause_(kProbePauseMin) {}

GpuCopyPlan GpuCopyPlanner::ByEngines(GpuCopyReason reason) {
  return {GpuMeans::kCopyEngine, reason, false, kEngineJobBytes, kEngineJobSegments, 0};
}

bool GpuCopyPlanner::IsForEngines(const GpuCopyWork& work, const GpuCopyCosts& costs) {
  const auto blocks = static_cast<double>(work.copies.blocks + work.copies.rows);
  return static_cast<double>(work.bytes) * static_cast<double>(work.workers) >=
         kEnginesMargin * KernelRate(costs) * static_cast<double>(costs.block_ns) * blocks;
}

uint64_t GpuCopyPlanner::RowBytesMax(size_t workers, const GpuCopyCosts& costs) {
  const double batched =
      static_cast<double>(costs.block_ns) / static_cast<double>(std::max<size_t>(workers, 1));
  const double row = static_cast<double>(costs.row_ps) / 1e3;
  const double row_byte = static_cast<double>(costs.row_byte_fs) / 1e6;
  const auto longest = static_cast<uint64_t>(std::max(batched - row, 0.0) / row_byte);
  return static_cast<double>(longest) < kFillsLink * row / row_byte ? longest : UINT64_MAX;
}

bool GpuCopyPlanner::IsFew(const GpuCopyWork& work) {
  return work.copies.blocks + kBlocksOfRows * work.copies.of_rows <= kFewBlocks;
}

bool GpuCopyPlanner::UsesEngines(TimePoint now) const {
  if (policy_ != GpuCopyPolicy::kAuto) return policy_ == GpuCopyPolicy::kEngines;
  return state_ != State::kIdle || now < no_kernels_until_;
}

GpuCopyPlan GpuCopyPlanner::Choose(const GpuCopyWork& work, TimePoint now) const {
  if (policy_ == GpuCopyPolicy::kEngines) return ByEngines(GpuCopyReason::kEnginesAsked);
  const bool has_kernels = now >= no_kernels_until_;
  if (policy_ == GpuCopyPolicy::kKernel && has_kernels) {
    return ByKernel(GpuCopyReason::kKernelAsked, false);
  }
  // One copy of rows is few, but what was planned by rows because the GPU was busy has to tell when
  // it no longer is.
  const bool looks = has_kernels && state_ == State::kBusy && now >= probe_again_;
  if (IsFew(work) && !(looks && work.copies.of_rows > 0)) {
    return ByEngines(GpuCopyReason::kFewBlocks);
  }
  if (IsForEngines(work, costs_)) {
    return ByEngines(GpuCopyReason::kWellFed);
  }
  if (!has_kernels) return ByEngines(GpuCopyReason::kNoKernels);
  if (state_ == State::kIdle) {
    return ByKernel(GpuCopyReason::kIdle, false,
                    now < idle_until_ ? kKernelJobsMax : kSupposedJobsMax);
  }
  if (looks) return ByKernel(GpuCopyReason::kProbe, true);
  return ByEngines(GpuCopyReason::kBusy);
}

GpuCopyPlanner::Job GpuCopyPlanner::Posted(const GpuCopyPlan& plan, uint64_t bytes, TimePoint now) {
  if (plan.means != GpuMeans::kKernel) return {plan, bytes};
  if (plan.probe) state_ = State::kProbed;
  if (in_flight_ == 0) {
    first_posted_ = now;
    moved_ = 0;
  }
  in_flight_ += bytes;
  return {plan, bytes};
}

// By the worker's clock, which begins when the job before was done: neither that one nor a sleep of
// the engine's thread counts.
bool GpuCopyPlanner::IsSlow(const Job& job, nanoseconds taken) const {
  const double rate = std::max(best_rate_, kSlowShare * KernelRate(costs_));
  return static_cast<double>(taken.count()) > kSlowFactor * static_cast<double>(job.bytes) / rate +
                                                  1e3 * static_cast<double>(costs_.turn_us);
}

void GpuCopyPlanner::Done(const Job& job, const worker::Completion& completion, TimePoint now) {
  if (job.plan.means != GpuMeans::kKernel) return;
  in_flight_ -= job.bytes;
  moved_ += completion.ok ? job.bytes : 0;
  if (completion.ok && completion.means != GpuMeans::kKernel) {
    no_kernels_until_ = now + kKernelsAgain;
  }
  if (in_flight_ == 0 && completion.ok && moved_ >= kRateBytesMin) {
    const nanoseconds busy = now - first_posted_;
    best_rate_ = std::max(best_rate_, static_cast<double>(moved_) /
                                          static_cast<double>(std::max<int64_t>(busy.count(), 1)));
  }
  const bool says_something = state_ == State::kIdle || job.plan.probe;  // others are from before
  if (!says_something) return;
  if (completion.ok) {
    Judge(IsSlow(job, nanoseconds(completion.copy_nanoseconds)), now);
  } else if (job.plan.probe) {
    state_ = State::kBusy;
  }
}

void GpuCopyPlanner::Judge(bool slow, TimePoint now) {
  if (slow) {
    const bool again = state_ == State::kProbed || now - idle_since_ < kProbePauseMax;
    probe_pause_ = again ? std::min<nanoseconds>(2 * probe_pause_, kProbePauseMax) : kProbePauseMin;
    probe_again_ = now + probe_pause_;
    quick_probes_ = 0;
    state_ = State::kBusy;
    return;
  }
  if (state_ == State::kProbed && ++quick_probes_ < kQuickProbes) {
    probe_again_ = now;
    state_ = State::kBusy;
    return;
  }
  if (state_ != State::kIdle) idle_since_ = now;
  idle_until_ = now + kIdleFor;
  quick_probes_ = 0;
  state_ = State::kIdle;
}

}  // namespace gantry::transport
