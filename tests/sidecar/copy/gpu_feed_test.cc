// Which worker is given which part of transfers between GPUs.
#include "tests/sidecar/copy/gpu_feed_fixture.h"

namespace gantry::transport {
namespace {

using worker::GpuMeans;

TEST_F(GpuFeedTest, KernelsRunInOneWorkerAndEveryBlockIsCopiedOnce) {
  // However slow this machine makes them look.
  CopyScheduler transport(By(GpuCopyPolicy::kKernel), pool_, pool_);
  std::vector<uint64_t> ready_tokens;
  const auto operation = transport.Start(Plan(kGpu, 20'000), 0, 1);
  transport.Poll(&ready_tokens);
  EXPECT_EQ(pool_.jobs[0].size(), 4U);
  EXPECT_TRUE(pool_.jobs[1].empty());
  for (int i = 0; i < 5000 && !operation->finished(); ++i) {
    pool_.FinishOneEach();
    transport.Poll(&ready_tokens);
  }
  ASSERT_TRUE(operation->finished());
  EXPECT_EQ(pool_.copied.size(), 20'000U);
  ExpectAllCopied(20'000);
  EXPECT_EQ(operation->progress().gpu_jobs_by_engine, 0U);
  EXPECT_GT(operation->progress().gpu_jobs_by_kernel, 4U);
}

// Who drives the engine polls as long as only devices work, and no longer.
TEST_F(GpuFeedTest, DevicesWorkUntilTheirLastJobIsDoneOrLost) {
  EXPECT_FALSE(polled_.should_spin);
  const auto first = Start(kGpu, 100);
  Poll();
  EXPECT_TRUE(polled_.should_spin);
  const auto host = Start(kHost, 1);
  Poll();
  EXPECT_FALSE(polled_.should_spin) << "processors copy, too";
  RunUntil(*host);
  RunUntil(*first);
  EXPECT_FALSE(polled_.should_spin);
  const auto second = Start(kGpu, 100);
  Poll();
  EXPECT_TRUE(polled_.should_spin);
  while (!second->finished()) {
    pool_.Lose(0);
    pool_.Lose(1);
    Poll();
  }
  EXPECT_TRUE(second->error());
  EXPECT_FALSE(polled_.should_spin);
}

// Waking up for each job would take processor time from busy workers.
TEST_F(GpuFeedTest, TheDriverIgnoresCompletionsWhileEachWorkerHasEnough) {
  constexpr uint64_t kBlock = 512 << 10;
  pool_.lists = false;
  Poll();
  EXPECT_EQ(polled_.poll_interval, nanoseconds(0)) << "nothing is queued";
  auto plan = Plan(kHost, 0);
  BlockPair pair;
  pair.unit_bytes = pair.local_stride = pair.remote_stride = kBlock;
  std::vector<BlockRun> runs;
  for (uint32_t i = 0; i < 64; ++i) runs.push_back({i, i, 1, i});
  plan->segments.AddRuns({pair}, std::move(runs));
  plan->bytes = 64 * kBlock;
  const auto operation = transport_.Start(std::move(plan), 0, ++tokens_);
  Poll();
  EXPECT_TRUE(polled_.progressed);
  EXPECT_GT(polled_.poll_interval, microseconds(100));
  while (!pool_.jobs[0].empty()) {
    pool_.Finish(0);
    Poll();
  }
  EXPECT_GT(pool_.jobs[1].size(), 8U);
  EXPECT_EQ(polled_.poll_interval, nanoseconds(0)) << "one worker has nothing left";
  RunUntil(*operation);
  EXPECT_TRUE(operation->finished());
}

// The parts are larger than the ones that the engines are given.
TEST_F(GpuFeedTest, WhatALostKernelWorkerLeavesIsTakenByEngines) {
  const auto operation = Start(kGpu, 20'000);
  Poll();
  pool_.Finish(0, /*kernels=*/false);  // this driver has none
  pool_.Lose(0);
  Poll();
  const auto other = Start(kHost, 10);
  const auto lower = Start(kHost, 10, -1);
  RunUntil(*operation, 5000, false);
  RunUntil(*other);
  RunUntil(*lower);
  ASSERT_TRUE(operation->finished() && other->finished() && lower->finished());
  EXPECT_FALSE(operation->error());
  EXPECT_EQ(operation->progress().bytes, 20'000U);
  EXPECT_EQ(operation->progress().gpu_jobs_by_kernel, 0U);
  EXPECT_EQ(operation->progress().gpu_reason, GpuCopyReason::kNoKernels);
  ExpectAllCopied(20'000);
}

TEST_F(GpuFeedTest, ALostPartThatHasNoRoomAtOnceIsPostedInParts) {
  const auto operation = Start(kGpu, 5'000);
  Poll();
  size_t lost = 0;
  for (const auto& job : pool_.jobs[0]) lost += job.destinations.size();
  ASSERT_GT(lost, 100U);
  pool_.places = 100;
  pool_.Lose(0);
  RunUntil(*operation);
  ASSERT_TRUE(operation->finished());
  EXPECT_FALSE(operation->error());
  EXPECT_EQ(operation->progress().bytes, 5'000U);
  EXPECT_EQ(operation->progress().chunks_retried, lost);
  ExpectAllCopied(5'000);
}

TEST_F(GpuFeedTest, SmallTransfersOfLowerPriorityDoNotKeepAKernelWaiting) {
  std::vector<std::unique_ptr<Operation>> small;
  for (int i = 0; i < 40; ++i) small.push_back(Start(kGpu, 1, -5));
  Poll();
  EXPECT_EQ(pool_.jobs[0].size(), CopySchedulerOptions().engine_jobs_max);
  const auto large = Start(kGpu, 20'000, 10);
  for (int i = 0; i < 5000 && !large->finished(); ++i) {
    pool_.FinishOneEach();
    Poll();
    for (auto& one : small) {
      if (one->finished()) one = Start(kGpu, 1, -5);
    }
  }
  EXPECT_TRUE(large->finished());
  std::vector<Operation*> all = {large.get()};
  for (const auto& one : small) all.push_back(one.get());
  EndAll(std::move(all));
}

TEST_F(GpuFeedTest, AKernelWorkerThatIsFullStopsNoOtherWorker) {
  const auto host = Start(kHost, 20'000);
  Poll();
  while (pool_.free_slots(0) > 0) {  // as little as it takes
    pool_.jobs[0].push_back({0, pool_.free_slots(0), {}, GpuMeans::kCopyEngine});
  }
  while (!pool_.jobs[1].empty()) pool_.Finish(1);
  const auto kernel = Start(kGpu, 100, 5);
  Poll();
  EXPECT_FALSE(pool_.jobs[1].empty());
  pool_.jobs[0].pop_back();
  EndAll({host.get(), kernel.get()});
}

TEST_F(GpuFeedTest, TransfersOfHostMemoryGoOnBesideAKernel) {
  const auto large = Start(kGpu, 60'000);
  const auto host = Start(kHost, 10);
  const auto few = Start(kGpu, 1);
  Poll();
  pool_.FinishOneEach();
  pool_.FinishOneEach();
  pool_.FinishOneEach();
  pool_.FinishOneEach();
  pool_.FinishOneEach();
  Poll();
  EXPECT_TRUE(host->finished());
  EXPECT_TRUE(few->finished());
  EXPECT_FALSE(large->finished());
  EndAll({large.get()});
}

// Several that take turns job by job end together, each waiting for the last batches of all.
TEST_F(GpuFeedTest, TransfersBetweenGpusArePostedOneAfterTheOther) {
  for (const GpuCopyPolicy policy : {GpuCopyPolicy::kEngines, GpuCopyPolicy::kKernel}) {
    CopyScheduler transport(By(policy), pool_, pool_);
    const auto first = transport.Start(Plan(kGpu, 40'000), 0, 1);
    const auto second = transport.Start(Plan(kGpu, 40'000), 0, 2);
    Run(&transport, *first);
    ASSERT_TRUE(first->finished());
    EXPECT_LT(second->progress().chunks, 30'000U) << "it began when all of the first was posted";
    Run(&transport, *second);
    EXPECT_TRUE(second->finished());
  }
}

TEST_F(GpuFeedTest, ATurnBetweenGpusEnds) {
  CopySchedulerOptions options = By(GpuCopyPolicy::kEngines);
  options.gpu_turn_bytes = 5'000;
  CopyScheduler transport(options, pool_, pool_);
  const auto endless = transport.Start(Plan(kGpu, 60'000), 0, 1);
  const auto other = transport.Start(Plan(kGpu, 20'000), 0, 2);
  Run(&transport, *other);
  ASSERT_TRUE(other->finished());
  EXPECT_LT(endless->progress().chunks, 40'000U) << "it had as much as the other, and a turn";
  Run(&transport, *endless);
  EXPECT_TRUE(endless->finished());
}

TEST_F(GpuFeedTest, SmallerTransfersBetweenGpusDoNotWaitForTheTurnOfALargeOne) {
  CopySchedulerOptions options = By(GpuCopyPolicy::kEngines);
  options.small_bytes_max = 500;
  for (const uint32_t blocks : {500U, 4'000U}) {
    CopyScheduler transport(options, pool_, pool_);
    const auto large = transport.Start(Plan(kGpu, 60'000), 0, 1);
    std::vector<uint64_t> ready_tokens;
    transport.Poll(&ready_tokens);
    const auto small = transport.Start(Plan(kGpu, blocks), 0, 2);
    Run(&transport, *small);
    ASSERT_TRUE(small->finished());
    EXPECT_LT(large->progress().chunks, 30'000U);
    Run(&transport, *large);
    EXPECT_TRUE(large->finished());
  }
}

TEST_F(GpuFeedTest, TransfersBetweenGpusOfAboutOneSizeWaitForEachOther) {
  CopySchedulerOptions options = By(GpuCopyPolicy::kEngines);
  options.small_bytes_max = 6'000;
  CopyScheduler transport(options, pool_, pool_);
  const auto first = transport.Start(Plan(kGpu, 48'000), 0, 1);
  const auto second = transport.Start(Plan(kGpu, 6'001), 0, 2);
  Run(&transport, *second);
  EXPECT_TRUE(first->finished()) << "of eight times as much";
  Run(&transport, *first);
}

TEST_F(GpuFeedTest, TransfersOfHostMemoryTakeTurnsJobByJob) {
  const auto first = Start(kHost, 20'000);
  const auto second = Start(kHost, 20'000);
  RunUntil(*first);
  ASSERT_TRUE(first->finished());
  EXPECT_GT(second->progress().chunks, 19'000U);
  RunUntil(*second);
}

// Both ways; the kernels of the other one have their worker full.
TEST_F(GpuFeedTest, WhatIsCopiedWithTheHostIsCopiedByEnginesWhateverIsAskedFor) {
  CopyScheduler transport(By(GpuCopyPolicy::kKernel), pool_, pool_);
  std::vector<uint64_t> ready_tokens;
  const auto large = transport.Start(Plan(kGpu, 60'000), 0, 1);
  transport.Poll(&ready_tokens);
  const auto out = transport.Start(Plan(kGpu, kHost, 20'000), 0, 2);
  const auto back = transport.Start(Plan(kHost, kGpu, 3), 0, 3);
  size_t engines[2] = {0, 0};
  for (int round = 0; round < 500 && !(out->finished() && back->finished()); ++round) {
    transport.Poll(&ready_tokens);
    for (size_t worker = 0; worker < 2; ++worker) {
      if (!pool_.jobs[worker].empty()) {
        engines[worker] += pool_.jobs[worker].front().means == GpuMeans::kCopyEngine ? 1 : 0;
      }
    }
    pool_.FinishOneEach();
  }
  ASSERT_TRUE(out->finished() && back->finished());
  EXPECT_FALSE(out->error() || back->error());
  EXPECT_GT(engines[1], 0U);
  EXPECT_EQ(engines[0], 0U) << "the kernels there would look as if they waited for their turn";
  for (const auto* operation : {out.get(), back.get()}) {
    EXPECT_EQ(operation->progress().gpu_jobs_by_kernel, 0U);
    EXPECT_GT(operation->progress().gpu_jobs_by_engine, 0U);
    EXPECT_EQ(operation->progress().gpu_reason, GpuCopyReason::kWithHost);
  }
  large->Stop();
  for (int round = 0; round < 500 && !large->finished(); ++round) {
    pool_.FinishOneEach();
    transport.Poll(&ready_tokens);
  }
  EXPECT_EQ(large->progress().gpu_jobs_by_engine, 0U);
}

TEST_F(GpuFeedTest, WithoutAnyGpuWorkerLeftWhatWaitsForOneFailsAndTheRestGoesOn) {
  pool_.places = 1;  // so that most of it waits
  auto of_gpu = Start(kGpu, 4096);
  auto with_host = transport_.Start(Plan(kGpu, kHost, 4096), 0, ++tokens_);
  auto of_host = Start(kHost, 4096);
  Poll();
  ASSERT_FALSE(of_gpu->finished());
  // Each worker dies; the successors have no context.
  for (int worker = 0; worker < pool_.worker_count(); ++worker) {
    pool_.gpus_of_workers[static_cast<size_t>(worker)] = -1;
    pool_.Lose(worker);
  }
  for (int i = 0; i < 3; ++i) Poll();
  for (const auto* operation : {of_gpu.get(), with_host.get()}) {
    ASSERT_TRUE(operation->finished());
    ASSERT_TRUE(operation->error());
    EXPECT_EQ(operation->error()->code, ErrorCode::kPathUnavailable) << operation->error()->message;
    EXPECT_EQ(operation->error()->message, worker::NoGpuWorkers().message);
  }
  RunUntil(*of_host);
  EXPECT_TRUE(of_host->finished());
}

TEST_F(GpuFeedTest, WhoCopiesBetweenAGpuAndTheHostIsWoken) {
  HandPool pool(4);
  pool.gpus_of_workers = {0, 1, 0, 1};
  CopyScheduler transport({}, pool, pool);
  const auto operation = transport.Start(Plan(kGpu, kHost, 2'000), 0, 1);
  std::vector<uint64_t> ready_tokens;
  transport.Poll(&ready_tokens);
  transport.hints().Expect(256);
  EXPECT_EQ(pool.woken, (std::set<int>{0, 1, 2, 3}));
  End(&transport, &pool, operation.get());
}

// A thread that looks for work takes half a core from who plans beside it.
TEST_F(GpuFeedTest, OnlyWhoseKernelsCopyAreWokenUntilEnginesDo) {
  HandPool pool(5);
  pool.gpus_of_workers = {0, 1, 0, 1, -1};
  CopyScheduler transport({}, pool, pool);
  transport.hints().Expect(255);
  EXPECT_EQ(pool.woken, std::set<int>());
  transport.hints().Expect(256);
  EXPECT_EQ(pool.woken, (std::set<int>{0, 1}));
  const auto operation = transport.Start(Plan(Map(kGpu, 0), Map(kGpu, 1), 20'000), 0, 1);
  std::vector<uint64_t> ready_tokens;
  for (int i = 0; i < 4; ++i) {  // kernels that wait for their turn
    transport.Poll(&ready_tokens);
    for (const int worker : {0, 1}) pool.Finish(worker, true, milliseconds(20));
  }
  ASSERT_FALSE(pool.jobs[2].empty()) << "copy engines have taken over";
  transport.hints().Expect(256);
  EXPECT_EQ(pool.woken, (std::set<int>{0, 1, 2, 3}));
  End(&transport, &pool, operation.get());
}

// Neither who is awake nor, where transfers are rare, anybody.
TEST_F(GpuFeedTest, WhoCopiedLastIsWokenWhenTheNextRequestComes) {
  static TimePoint now;
  now = Clock::now();
  CopySchedulerOptions options;
  options.now = [] { return now; };
  HandPool pool(3);
  pool.gpus_of_workers = {-1, -1, 0};
  CopyScheduler transport(options, pool, pool);
  const auto woken_after = [&](nanoseconds time) {
    now += time;
    pool.woken.clear();
    transport.hints().Foresee();
    return pool.woken;
  };
  EXPECT_EQ(woken_after(milliseconds(0)), std::set<int>()) << "nobody has copied";
  const auto operation = transport.Start(Plan(kGpu, kHost, 8), 0, 1);
  Run(&transport, *operation);
  End(&transport, &pool, operation.get());
  EXPECT_EQ(woken_after(microseconds(50)), std::set<int>()) << "it looks for jobs still";
  EXPECT_EQ(woken_after(microseconds(100)), (std::set<int>{2}));
  EXPECT_EQ(woken_after(milliseconds(900)), (std::set<int>{2}));
  EXPECT_EQ(woken_after(milliseconds(100)), std::set<int>()) << "too long ago";
}

}  // namespace
}  // namespace gantry::transport
