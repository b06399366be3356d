// Transfers whose segments are rows: their parts, what is left of them after a failure, and what
// copies them.
#include <set>

#include "tests/sidecar/copy/gpu_feed_fixture.h"

namespace gantry::transport {
namespace {

constexpr uint32_t kLayers = 32;
constexpr uint64_t kStep = 2000;

class RowFeedTest : public GpuFeedTest {
 protected:
  // Unit i of layer k goes to offset k * kStep + i; `runs` of one or several units.
  std::shared_ptr<MovePlan> Layers(std::vector<BlockRun> runs) {
    const auto here = Map(kGpu);
    auto plan = std::make_shared<MovePlan>();
    plan->local = {here};
    plan->remote = {{here}};
    BlockPair rows;
    rows.unit_bytes = rows.local_stride = rows.remote_stride = 1;
    rows.rows = kLayers;
    rows.local_row_step = rows.remote_row_step = kStep;
    for (const BlockRun& run : runs) plan->bytes += uint64_t{run.count} * kLayers;
    plan->segments.AddRuns({rows}, std::move(runs));
    return plan;
  }
  static std::vector<BlockRun> Singles(uint32_t units) {
    std::vector<BlockRun> runs;
    for (uint32_t i = 0; i < units; ++i) runs.push_back({i, i, 1, i});
    return runs;
  }
  // Between GPUs 0 and 1.
  std::shared_ptr<MovePlan> LayersOfTwo(std::vector<BlockRun> runs) {
    auto plan = Layers(std::move(runs));
    plan->local = {Map(kGpu, 0)};
    plan->remote = {{Map(kGpu, 1)}};
    return plan;
  }
  // A few rows of the two, and many blocks that are none.
  std::shared_ptr<MovePlan> MostlyLoose() {
    constexpr uint32_t kRows = 10, kLoose = 60'000;
    auto plan = LayersOfTwo(Singles(kRows));
    BlockPair loose;
    loose.unit_bytes = loose.local_stride = loose.remote_stride = 1;
    std::vector<BlockRun> runs;
    for (uint32_t i = 0; i < kLoose; ++i) runs.push_back({i, i, 1, kRows + i});
    plan->segments.AddRuns({loose}, std::move(runs));
    plan->bytes += kLoose;
    return plan;
  }
  // Its workers are on both in turns.
  static HandPool PoolOnTwo(int workers) {
    HandPool pool(workers);
    for (int worker = 0; worker < workers; ++worker)
      pool.gpus_of_workers[static_cast<size_t>(worker)] = worker % 2;
    return pool;
  }
  void ExpectAllLayersCopied(uint32_t units) const {
    std::multiset<uint64_t> expected;
    for (uint64_t layer = 0; layer < kLayers; ++layer) {
      for (uint64_t i = 0; i < units; ++i) expected.insert(layer * kStep + i);
    }
    EXPECT_EQ(std::multiset<uint64_t>(pool_.copied.begin(), pool_.copied.end()), expected);
  }

  std::vector<uint64_t> ready_tokens_;
};

TEST_F(RowFeedTest, EveryRowIsCopiedOnceByEitherMeans) {
  for (const GpuCopyPolicy policy : {GpuCopyPolicy::kEngines, GpuCopyPolicy::kKernel}) {
    CopyScheduler transport(By(policy), pool_, pool_);
    pool_.copied.clear();
    const auto operation = transport.Start(Layers(Singles(1500)), 0, 1);
    Run(&transport, *operation);
    ASSERT_TRUE(operation->finished());
    EXPECT_FALSE(operation->error());
    EXPECT_EQ(operation->progress().chunks, 1500U) << "a copy of rows is one";
    EXPECT_EQ(operation->progress().bytes, 1500U * kLayers);
    EXPECT_TRUE(operation->UnfinishedItems().empty());
    ExpectAllLayersCopied(1500);
  }
}

// So that the GPU begins early: what counts are the blocks.
TEST_F(RowFeedTest, TheFirstJobsOfAKernelHaveFewBlocks) {
  CopyScheduler transport(By(GpuCopyPolicy::kKernel), pool_, pool_);
  const auto operation = transport.Start(Layers(Singles(1500)), 0, 1);
  transport.Poll(&ready_tokens_);
  ASSERT_GE(pool_.jobs[0].size(), 2U);
  EXPECT_EQ(pool_.jobs[0][0].destinations.size(), 1024U);
  EXPECT_EQ(pool_.jobs[0][1].destinations.size(), 2048U);
  operation->Stop();
  for (int i = 0; i < 100; ++i) {
    pool_.FinishOneEach();
    transport.Poll(&ready_tokens_);
  }
}

TEST_F(RowFeedTest, WhatALostWorkerHadIsPostedOnceMore) {
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool_, pool_);
  const auto operation = transport.Start(Layers(Singles(900)), 0, 1);
  transport.Poll(&ready_tokens_);
  pool_.Lose(0);
  Run(&transport, *operation);
  ASSERT_TRUE(operation->finished());
  EXPECT_FALSE(operation->error());
  EXPECT_GT(operation->progress().chunks_retried, 0U);
  ExpectAllLayersCopied(900);
}

TEST_F(RowFeedTest, ItemsOfRowsThatFailedAreUnfinishedAndNoOthers) {
  pool_.places = 2;  // two segments a job
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool_, pool_);
  // Items 0 to 2, 3, 4 and 5, 6 of the plan.
  const auto operation =
      transport.Start(Layers({{0, 9, 3, 0}, {20, 0, 1, 3}, {30, 50, 2, 4}, {40, 70, 1, 6}}), 0, 1);
  transport.Poll(&ready_tokens_);
  int first = pool_.jobs[0].empty() ? 1 : 0;
  if (!pool_.jobs[1].empty() && pool_.jobs[1].front().destinations.front() == 0) first = 1;
  ASSERT_FALSE(pool_.jobs[static_cast<size_t>(first)].empty());
  auto& queue = pool_.jobs[static_cast<size_t>(first)];
  pool_.done.push_back({queue.front().tag, first, false, ErrorCode::kOutOfRange, 0, {}});
  queue.pop_front();
  for (int i = 0; i < 100 && !operation->finished(); ++i) {
    pool_.FinishOneEach();
    transport.Poll(&ready_tokens_);
  }
  ASSERT_TRUE(operation->finished());
  ASSERT_TRUE(operation->error());
  const std::vector<uint32_t> unfinished = operation->UnfinishedItems();
  ASSERT_GE(unfinished.size(), 4U);
  EXPECT_EQ(std::vector<uint32_t>(unfinished.begin(), unfinished.begin() + 4),
            (std::vector<uint32_t>{0, 1, 2, 3}));
  const bool rest_moved = operation->progress().chunks == 2;
  EXPECT_EQ(unfinished.size(), rest_moved ? 4U : 7U);
}

// What has a side on the host goes through staging memory, and other transports have no engines.
TEST_F(RowFeedTest, OnlyWhatIsBetweenGpusIsPlannedByRows) {
  CopyScheduler by_engines(By(GpuCopyPolicy::kEngines), pool_, pool_);
  const auto gpu = Map(kGpu);
  const auto host = Map(kHost);
  const CopyHints& hints = by_engines.hints();
  const RowLimits limits = hints.RowsOf({gpu}, {{gpu}});
  EXPECT_TRUE(limits.any());
  EXPECT_GE(limits.bytes_max, limits.rows_min * limits.few_row_bytes_max);
  EXPECT_GT(limits.few_row_bytes_max, limits.row_bytes_max);
  EXPECT_LT(limits.step_max, uint64_t{1} << 31);
  EXPECT_FALSE(hints.RowsOf({gpu}, {{host}}).any());
  EXPECT_FALSE(hints.RowsOf({host}, {{gpu}}).any());
  EXPECT_FALSE(hints.RowsOf({gpu, host}, {{gpu}}).any());
  EXPECT_FALSE(hints.RowsOf({host}, {{host}}).any());
}

// With two workers on the only GPU.
TEST_F(RowFeedTest, TheCostsOfTheGpuLimitTheLengthOfRows) {
  CopySchedulerOptions options = By(GpuCopyPolicy::kEngines);
  worker::GpuCopyCosts costs = {.row_ps = 20'000, .row_byte_fs = 20'000};
  options.costs_of = [&](int gpu) { return gpu == 0 ? costs : worker::GpuCopyCosts(); };
  CopyScheduler by_engines(options, pool_, pool_);
  const auto gpu = Map(kGpu);
  const CopyHints& hints = by_engines.hints();
  EXPECT_GE(hints.RowsOf({gpu}, {{gpu}}).row_bytes_max, 20'000U);
  costs.row_ps = 350'000;
  EXPECT_EQ(hints.RowsOf({gpu}, {{gpu}}).row_bytes_max, 3'750U) << "(850 / 2 - 350) / 0.02";
  costs.row_ps = 430'000;
  EXPECT_FALSE(hints.RowsOf({gpu}, {{gpu}}).any());
}

TEST_F(RowFeedTest, TheGpuWithTheShorterRowsDecidesForBoth) {
  pool_.gpus_of_workers = {0, 1};
  CopySchedulerOptions options = By(GpuCopyPolicy::kEngines);
  options.costs_of = [](int gpu) {
    return worker::GpuCopyCosts{.row_ps = gpu == 0 ? 20'000U : 350'000U, .row_byte_fs = 20'000};
  };
  CopyScheduler by_engines(options, pool_, pool_);
  const auto first = Map(kGpu, 0);
  const auto second = Map(kGpu, 1);
  const CopyHints& hints = by_engines.hints();
  EXPECT_EQ(hints.RowsOf({first}, {{second}}).row_bytes_max, 3'750U) << "(850 / 2 - 350) / 0.02";
  EXPECT_EQ(hints.RowsOf({second}, {{first}}).row_bytes_max, 3'750U);
}

// Who will copy is not known when it is planned: what was seen last decides.
TEST_F(RowFeedTest, WhereTheGpusWereBusyLastItIsPlannedByRows) {
  pool_.gpus_of_workers = {0, 1};
  const auto here = Map(kGpu, 0);
  const auto there = Map(kGpu, 1);
  const auto by_rows = [&](const auto& local, const auto& remote) {
    return transport_.hints().RowsOf({local}, {{remote}}).any();
  };
  const auto look = [&](const auto& memory, int worker, nanoseconds taken) {
    const auto operation = transport_.Start(Plan(memory, memory, 3000), 0, ++tokens_);
    for (int i = 0; i < 100 && !operation->finished(); ++i) {
      Poll();
      pool_.Finish(worker, true, taken);
    }
    EXPECT_TRUE(operation->finished());
  };
  EXPECT_FALSE(by_rows(here, there)) << "as nobody knows";
  look(here, 0, milliseconds(20));
  EXPECT_TRUE(by_rows(here, here));
  EXPECT_FALSE(by_rows(here, there)) << "a kernel of the other one may copy";
  look(there, 1, milliseconds(20));
  EXPECT_TRUE(by_rows(here, there));
  EXPECT_TRUE(by_rows(there, here));
  const TimePoint end = Clock::now() + milliseconds(10'000);
  while (by_rows(there, there) && Clock::now() < end) look(there, 1, nanoseconds(1000));
  EXPECT_FALSE(by_rows(there, there)) << "looks found it idle again";
  EXPECT_FALSE(by_rows(here, there));
  EXPECT_TRUE(by_rows(here, here));
  CopyScheduler by_kernels(By(GpuCopyPolicy::kKernel), pool_, pool_);
  EXPECT_FALSE(by_kernels.hints().RowsOf({here}, {{here}}).any());
}

// A GPU's engines are at one copy of rows at a time.
TEST_F(RowFeedTest, OneWorkerOfEachGpuHandsRowsOver) {
  HandPool pool = PoolOnTwo(5);
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool, pool);
  const auto operation = transport.Start(LayersOfTwo(Singles(8000)), 0, 1);
  transport.Poll(&ready_tokens_);
  for (size_t worker = 0; worker < pool.jobs.size(); ++worker) {
    EXPECT_EQ(pool.jobs[worker].empty(), worker >= 2) << worker;
  }
  End(&transport, &pool, operation.get());
}

// The other workers of its GPUs copy for transfers of other queues meanwhile.
TEST_F(RowFeedTest, WhatIsMostlyRowsLeavesOtherWorkersToOtherQueues) {
  HandPool pool = PoolOnTwo(4);
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool, pool);
  const auto rows = transport.Start(LayersOfTwo(Singles(8000)), 0, 1);
  const auto host = transport.Start(Plan(kHost, 20'000), 0, 2);
  for (int round = 0; round < 1000 && !(rows->finished() && host->finished()); ++round) {
    transport.Poll(&ready_tokens_);
    pool.FinishOneEach();
  }
  EXPECT_TRUE(rows->finished() && host->finished());
  EXPECT_EQ(rows->progress().workers, 2);
  EXPECT_EQ(rows->progress().bytes, 8000U * kLayers);
}

TEST_F(RowFeedTest, AllHandOverWhatIsMostlyNoRows) {
  HandPool pool = PoolOnTwo(12);
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool, pool);
  const auto operation = transport.Start(MostlyLoose(), 0, 1);
  transport.Poll(&ready_tokens_);
  for (size_t worker = 0; worker < pool.jobs.size(); ++worker) {
    EXPECT_FALSE(pool.jobs[worker].empty()) << worker;
  }
  End(&transport, &pool, operation.get());
}

// What is mostly no rows takes its turn whole: who copies rows would be the only one at work on it.
TEST_F(RowFeedTest, LooseBlocksAreOfTheTransferWhoseTurnItIs) {
  HandPool pool = PoolOnTwo(12);
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool, pool);
  const auto first = transport.Start(MostlyLoose(), 0, 1);
  const auto second = transport.Start(LayersOfTwo(Singles(8000)), 0, 2);
  transport.Poll(&ready_tokens_);
  EXPECT_EQ(first->progress().workers, 12U);
  End(&transport, &pool, first.get());
  End(&transport, &pool, second.get());
}

// The end of one transfer is not cut into small pieces while the next one waits.
TEST_F(RowFeedTest, JobsStayLongWhileOtherTransfersWait) {
  constexpr uint64_t kBlockOfLayers = 1 << 20;
  const auto shortest = [&](int transfers) {
    HandPool pool = PoolOnTwo(2);
    pool.lists = false;
    CopyScheduler transport(By(GpuCopyPolicy::kEngines), pool, pool);
    std::vector<std::unique_ptr<Operation>> operations;
    for (int i = 0; i < transfers; ++i) {
      auto plan = LayersOfTwo({});
      BlockPair rows;
      rows.unit_bytes = rows.local_stride = rows.remote_stride = kBlockOfLayers / kLayers;
      rows.rows = kLayers;
      rows.local_row_step = rows.remote_row_step = 1024 * kBlockOfLayers / kLayers;
      plan->segments.AddRuns({rows}, Singles(256));
      plan->bytes = 256 * kBlockOfLayers;
      operations.push_back(transport.Start(std::move(plan), 0, static_cast<uint64_t>(i)));
    }
    uint64_t least = UINT64_MAX;
    for (int round = 0; round < 1000 && !operations[0]->finished(); ++round) {
      transport.Poll(&ready_tokens_);
      if (!pool.jobs[0].empty()) least = std::min(least, pool.jobs[0].front().bytes);
      pool.FinishOneEach();
    }
    EXPECT_TRUE(operations[0]->finished());
    for (auto& operation : operations) End(&transport, &pool, operation.get());
    return least;
  };
  EXPECT_EQ(shortest(1), kBlockOfLayers) << "so that the workers end together";
  EXPECT_EQ(shortest(4), 16 * kBlockOfLayers);
}

TEST_F(RowFeedTest, OneCopyOfRowsIsForAnEngineAndManyForAKernel) {
  CopyScheduler transport({}, pool_, pool_);
  const auto one = transport.Start(Layers(Singles(1)), 0, 1);
  transport.Poll(&ready_tokens_);
  EXPECT_EQ(one->progress().gpu_reason, GpuCopyReason::kFewBlocks);
  const auto many = transport.Start(Layers(Singles(40)), 0, 2);
  transport.Poll(&ready_tokens_);
  EXPECT_EQ(many->progress().gpu_reason, GpuCopyReason::kIdle);
  for (int i = 0; i < 100; ++i) {
    pool_.FinishOneEach();
    transport.Poll(&ready_tokens_);
  }
  EXPECT_TRUE(one->finished() && many->finished());
}

}  // namespace
}  // namespace gantry::transport
