#include "sidecar/copy/gpu_copy_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gantry::transport {
namespace {

using worker::GpuMeans;

constexpr uint64_t kMiB = 1 << 20;
const TimePoint kStart = TimePoint() + std::chrono::hours(1);

GpuCopyWork Blocks(uint64_t count, uint64_t bytes = 4096, size_t workers = 4) {
  return {{count, 0, 0}, count * bytes, workers};
}
// Copies of 64 rows.
GpuCopyWork Rows(uint64_t copies, uint64_t bytes, size_t workers) {
  return {{0, copies, copies * 64}, copies * 64 * bytes, workers};
}
// For a transfer of many blocks.
GpuCopyPlan Choose(const GpuCopyPlanner& planner, TimePoint now) {
  return planner.Choose(Blocks(10'000), now);
}

worker::Completion By(GpuMeans means, microseconds taken = microseconds(20)) {
  worker::Completion completion;
  completion.means = means;
  completion.copy_nanoseconds = static_cast<uint64_t>(nanoseconds(taken).count());
  return completion;
}

// One job of the plan is posted, and takes until `now`.
void RunOne(GpuCopyPlanner& planner, const GpuCopyPlan& plan, microseconds taken, TimePoint now) {
  planner.Done(planner.Posted(plan, plan.job_bytes, now - taken), By(GpuMeans::kKernel, taken),
               now);
}

TEST(GpuCopyPlanner, FewBlocksDoNotWaitForAKernel) {
  const GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  EXPECT_EQ(planner.Choose(Blocks(1), kStart).means, GpuMeans::kCopyEngine);
  EXPECT_EQ(planner.Choose(Blocks(8), kStart).means, GpuMeans::kCopyEngine);
  EXPECT_EQ(planner.Choose(Blocks(9), kStart).means, GpuMeans::kKernel);
}

TEST(GpuCopyPlanner, AKernelThatWaitsForItsTurnGivesTheWorkToTheEngines) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan first = Choose(planner, kStart);
  RunOne(planner, first, microseconds(190), kStart);
  EXPECT_EQ(Choose(planner, kStart).means, GpuMeans::kKernel) << "64 MiB in 190 us is fast";
  RunOne(planner, first, microseconds(20'000), kStart);
  const GpuCopyPlan busy = Choose(planner, kStart);
  EXPECT_EQ(busy.means, GpuMeans::kCopyEngine);
  EXPECT_EQ(busy.reason, GpuCopyReason::kBusy);
}

TEST(GpuCopyPlanner, JobsFromBeforeTellNothingOfABusyGpu) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan first = Choose(planner, kStart);
  const auto slow = planner.Posted(first, first.job_bytes, kStart - microseconds(20'000));
  const auto behind = planner.Posted(first, first.job_bytes, kStart - microseconds(50));
  planner.Done(slow, By(GpuMeans::kKernel, microseconds(20'000)), kStart);
  planner.Done(behind, By(GpuMeans::kKernel), kStart);  // in the same turn as the slow one
  EXPECT_EQ(Choose(planner, kStart).means, GpuMeans::kCopyEngine);
}

TEST(GpuCopyPlanner, OneSmallJobLooksAgainAndTheOthersGoOnByEngines) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  RunOne(planner, Choose(planner, kStart), microseconds(20'000), kStart);
  const TimePoint later = kStart + std::chrono::seconds(3);
  const GpuCopyPlan probe = Choose(planner, later);
  EXPECT_TRUE(probe.probe);
  EXPECT_EQ(probe.means, GpuMeans::kKernel);
  EXPECT_LE(probe.job_bytes, kMiB);
  EXPECT_TRUE(Choose(planner, later).probe) << "a plan that was not posted changes nothing";
  const auto job = planner.Posted(probe, probe.job_bytes, later);
  EXPECT_EQ(Choose(planner, later).means, GpuMeans::kCopyEngine);
  planner.Done(job, By(GpuMeans::kKernel), later + microseconds(20));
  for (int i = 0; i < 2; ++i) {  // one that was quick may have met a gap
    const GpuCopyPlan again = Choose(planner, later + milliseconds(1));
    EXPECT_TRUE(again.probe);
    RunOne(planner, again, microseconds(20), later + milliseconds(1));
  }
  EXPECT_EQ(Choose(planner, later).means, GpuMeans::kKernel);
  EXPECT_FALSE(Choose(planner, later).probe);
}

TEST(GpuCopyPlanner, AProbeThatMetAGapDoesNotBringTheKernelBack) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  RunOne(planner, Choose(planner, kStart), microseconds(20'000), kStart);
  TimePoint now = kStart;
  for (int i = 0; i < 60; ++i) {  // two of three are quick
    now += std::chrono::seconds(3);
    const GpuCopyPlan plan = Choose(planner, now);
    ASSERT_TRUE(plan.probe) << i;
    RunOne(planner, plan, microseconds(i % 3 == 2 ? 3'000 : 20), now);
  }
}

// What nobody knows of costs one turn, not one for each of the jobs.
TEST(GpuCopyPlanner, FewKernelsGoAheadUntilTheGpuIsKnownToBeIdle) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan first = Choose(planner, kStart);
  EXPECT_EQ(first.jobs_max, 2U);
  RunOne(planner, first, microseconds(190), kStart);
  EXPECT_GT(Choose(planner, kStart + milliseconds(40)).jobs_max, 2U);
  EXPECT_EQ(Choose(planner, kStart + milliseconds(60)).jobs_max, 2U);
}

// Not even the first kernel of a sidecar's life makes a busy GPU look idle.
TEST(GpuCopyPlanner, AKernelAtTheSpeedOfABusyGpuIsSlowFromTheStart) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan first = Choose(planner, kStart);
  RunOne(planner, first, microseconds(static_cast<int64_t>(first.job_bytes / 35'000)), kStart);
  EXPECT_EQ(Choose(planner, kStart).means, GpuMeans::kCopyEngine);
}

TEST(GpuCopyPlanner, LargeBlocksGoToEnginesThatEnoughWorkersFeed) {
  const GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const auto means = [&](uint64_t bytes, size_t workers) {
    return planner.Choose(Blocks(10'000, bytes, workers), kStart).means;
  };
  EXPECT_EQ(means(64 << 10, 8), GpuMeans::kCopyEngine);
  EXPECT_EQ(means(64 << 10, 6), GpuMeans::kKernel);
  EXPECT_EQ(means(64 << 10, 4), GpuMeans::kKernel);
  EXPECT_EQ(means(128 << 10, 4), GpuMeans::kCopyEngine);
  EXPECT_EQ(means(16 << 10, 12), GpuMeans::kKernel);
  EXPECT_EQ(means(16 << 10, 32), GpuMeans::kCopyEngine);
  EXPECT_EQ(means(1 << 20, 1), GpuMeans::kCopyEngine);
}

TEST(GpuCopyPlanner, TheMoreWorkersTheShorterAreRowsThatPay) {
  EXPECT_GE(GpuCopyPlanner::RowBytesMax(4, {}), 64U << 10);
  EXPECT_GE(GpuCopyPlanner::RowBytesMax(6, {}), 64U << 10);
  EXPECT_GE(GpuCopyPlanner::RowBytesMax(8, {}), 64U << 10);
  EXPECT_GT(GpuCopyPlanner::RowBytesMax(12, {}), 16U << 10);
  EXPECT_LT(GpuCopyPlanner::RowBytesMax(12, {}), 32U << 10);
  EXPECT_LT(GpuCopyPlanner::RowBytesMax(24, {}), 8U << 10);
  EXPECT_EQ(GpuCopyPlanner::RowBytesMax(64, {}), 0U);
  EXPECT_EQ(GpuCopyPlanner::RowBytesMax(0, {}), GpuCopyPlanner::RowBytesMax(1, {}));
}

// The formulas that had the constants of H200, before costs were measured.
TEST(GpuCopyPlanner, TheFallbackDecidesAsTheConstantsDid) {
  for (size_t workers = 1; workers <= 64; ++workers) {
    const double batched = 850 / static_cast<double>(workers);
    const auto longest = static_cast<uint64_t>(std::max(batched - 19, 0.0) / 0.00226);
    EXPECT_EQ(GpuCopyPlanner::RowBytesMax(workers, {}),
              longest < (30U << 10) ? longest : UINT64_MAX)
        << workers;
    for (uint64_t bytes = 512; bytes <= 1 << 20; bytes += 512) {
      const GpuCopyWork work = Blocks(1000, bytes, workers);
      const bool fed = static_cast<double>(work.bytes) * static_cast<double>(workers) >=
                       1.25 * 375.0 * 850.0 * 1000;
      ASSERT_EQ(GpuCopyPlanner::IsForEngines(work, {}), fed) << bytes << " by " << workers;
    }
  }
  for (const auto& [bytes, nanoseconds] : {std::pair<uint64_t, int64_t>{64 << 20, 1'421'088},
                                           {8 << 20, 833'886},
                                           {1 << 20, 760'485}}) {
    for (const int64_t more : {0, 1}) {
      GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
      worker::Completion done = By(GpuMeans::kKernel);
      done.copy_nanoseconds = static_cast<uint64_t>(nanoseconds + more);
      planner.Done(planner.Posted(Choose(planner, kStart), bytes, kStart - milliseconds(9)), done,
                   kStart);
      EXPECT_EQ(planner.UsesEngines(kStart), more == 1) << bytes;
    }
  }
}

TEST(GpuCopyPlanner, QuickProcessorsFeedTheEnginesWithSmallerBlocks) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyWork work = Blocks(10'000, 16 << 10, 12);
  EXPECT_EQ(planner.Choose(work, kStart).means, GpuMeans::kKernel);
  planner.SetCosts({.block_ns = 400});
  EXPECT_EQ(planner.Choose(work, kStart).means, GpuMeans::kCopyEngine);
}

TEST(GpuCopyPlanner, SlowLinksLeaveLessToAKernel) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  planner.SetCosts({.kernel_mb_s = 25'000});
  EXPECT_EQ(planner.Choose(Blocks(10'000, 16 << 10, 2), kStart).reason, GpuCopyReason::kWellFed);
  EXPECT_EQ(planner.Choose(Blocks(10'000, 4096, 2), kStart).means, GpuMeans::kKernel);
}

// 64 MiB at 25 GB/s take 2.7 ms: on H200 the GPU would be busy.
TEST(GpuCopyPlanner, AKernelOverASlowLinkIsNotTakenForOneThatWaits) {
  for (const bool known : {false, true}) {
    GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
    if (known) planner.SetCosts({.kernel_mb_s = 25'000});
    RunOne(planner, Choose(planner, kStart), microseconds(2'700), kStart);
    EXPECT_EQ(planner.UsesEngines(kStart), !known);
  }
}

TEST(GpuCopyPlanner, AGpuWithLongTurnsIsBusyLater) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  planner.SetCosts({.turn_us = 5'000});
  RunOne(planner, Choose(planner, kStart), microseconds(5'000), kStart);
  EXPECT_FALSE(planner.UsesEngines(kStart));
}

TEST(GpuCopyPlanner, WhatRowsCostDecidesHowLongTheyMayBe) {
  const uint64_t usual = GpuCopyPlanner::RowBytesMax(12, {});
  EXPECT_LT(GpuCopyPlanner::RowBytesMax(12, {.row_ps = 50'000}), usual);
  EXPECT_EQ(GpuCopyPlanner::RowBytesMax(12, {.row_ps = 80'000}), 0U);
  EXPECT_LT(GpuCopyPlanner::RowBytesMax(12, {.row_byte_fs = 4'000}), usual);
  EXPECT_EQ(GpuCopyPlanner::RowBytesMax(12, {.block_ns = 2'000}), UINT64_MAX);
}

TEST(GpuCopyPlanner, EnginesAreExpectedWhileTheGpuIsBusyOrHasNoKernels) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  EXPECT_FALSE(planner.UsesEngines(kStart));
  RunOne(planner, Choose(planner, kStart), microseconds(20'000), kStart);
  EXPECT_TRUE(planner.UsesEngines(kStart));
  TimePoint now = kStart + std::chrono::seconds(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(planner.UsesEngines(now)) << "a look is not the end of it";
    RunOne(planner, Choose(planner, now), microseconds(20), now);
  }
  EXPECT_FALSE(planner.UsesEngines(now));
  const GpuCopyPlan plan = Choose(planner, now);
  planner.Done(planner.Posted(plan, plan.job_bytes, now), By(GpuMeans::kCopyEngine), now);
  EXPECT_TRUE(planner.UsesEngines(now));
  EXPECT_FALSE(planner.UsesEngines(now + std::chrono::seconds(11)));
  EXPECT_TRUE(GpuCopyPlanner(GpuCopyPolicy::kEngines).UsesEngines(kStart));
  EXPECT_FALSE(GpuCopyPlanner(GpuCopyPolicy::kKernel).UsesEngines(kStart));
}

TEST(GpuCopyPlanner, OneCopyOfRowsIsFewBlocks) {
  const GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  EXPECT_EQ(planner.Choose(Rows(1, 512, 1), kStart).means, GpuMeans::kCopyEngine);
  EXPECT_EQ(planner.Choose(Rows(2, 512, 1), kStart).means, GpuMeans::kKernel);
}

// Else it would count as busy for ever where all transfers are that short.
TEST(GpuCopyPlanner, OneCopyOfRowsLooksWhetherTheGpuIsStillBusy) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  RunOne(planner, Choose(planner, kStart), microseconds(20'000), kStart);
  EXPECT_EQ(planner.Choose(Rows(1, 512, 1), kStart).reason, GpuCopyReason::kFewBlocks);
  TimePoint now = kStart + std::chrono::seconds(3);
  EXPECT_EQ(planner.Choose(Blocks(1), now).means, GpuMeans::kCopyEngine);
  for (int i = 0; i < 3; ++i) {
    const GpuCopyPlan look = planner.Choose(Rows(1, 512, 1), now);
    ASSERT_TRUE(look.probe) << i;
    RunOne(planner, look, microseconds(20), now);
  }
  EXPECT_FALSE(planner.UsesEngines(now));
}

TEST(GpuCopyPlanner, LooksAgainLessOftenTheSoonerItIsBusyAgain) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  TimePoint now = kStart;
  RunOne(planner, Choose(planner, now), microseconds(20'000), now);
  int probes = 0;
  for (const TimePoint end = now + std::chrono::seconds(20); now < end; now += milliseconds(10)) {
    const GpuCopyPlan plan = Choose(planner, now);
    if (!plan.probe) continue;
    ++probes;
    RunOne(planner, plan, microseconds(20'000), now);
  }
  EXPECT_GT(probes, 5);
  EXPECT_LT(probes, 20);
}

TEST(GpuCopyPlanner, AProbeThatIsLostIsMadeAgain) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  RunOne(planner, Choose(planner, kStart), microseconds(20'000), kStart);
  const TimePoint later = kStart + std::chrono::seconds(3);
  const GpuCopyPlan probe = Choose(planner, later);
  const auto job = planner.Posted(probe, probe.job_bytes, later);
  worker::Completion lost;
  lost.ok = false;
  lost.code = ErrorCode::kWorkerLost;
  planner.Done(job, lost, later);
  EXPECT_TRUE(Choose(planner, later).probe);
}

TEST(GpuCopyPlanner, WithoutKernelsItIsTheEnginesUntilAWorkerMayHaveThem) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan plan = Choose(planner, kStart);
  const auto job = planner.Posted(plan, plan.job_bytes, kStart);
  planner.Done(job, By(GpuMeans::kCopyEngine), kStart + microseconds(50));
  const GpuCopyPlan then = Choose(planner, kStart + std::chrono::seconds(9));
  EXPECT_EQ(then.means, GpuMeans::kCopyEngine);
  EXPECT_EQ(then.reason, GpuCopyReason::kNoKernels);
  EXPECT_EQ(Choose(planner, kStart + std::chrono::seconds(11)).means, GpuMeans::kKernel);
}

TEST(GpuCopyPlanner, WhatLiesAheadOfAJobIsNoReasonToCallItSlow) {
  GpuCopyPlanner planner(GpuCopyPolicy::kAuto);
  const GpuCopyPlan plan = Choose(planner, kStart);
  TimePoint now = kStart;
  RunOne(planner, plan, microseconds(335), now);  // 200 GB/s
  std::vector<GpuCopyPlanner::Job> jobs;
  for (int i = 0; i < 30; ++i) jobs.push_back(planner.Posted(plan, plan.job_bytes, now));
  for (const auto& job : jobs) {
    now += microseconds(335);
    planner.Done(job, By(GpuMeans::kKernel, microseconds(335)), now);
    EXPECT_EQ(Choose(planner, now).means, GpuMeans::kKernel);
  }
}

TEST(GpuCopyPlanner, AnOperatorMayDecide) {
  const GpuCopyPlanner engines(GpuCopyPolicy::kEngines);
  EXPECT_EQ(Choose(engines, kStart).means, GpuMeans::kCopyEngine);
  const GpuCopyPlanner kernel(GpuCopyPolicy::kKernel);
  EXPECT_EQ(kernel.Choose(Blocks(1), kStart).means, GpuMeans::kKernel);
}

}  // namespace
}  // namespace gantry::transport
