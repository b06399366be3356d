// Which worker is given which part of transfers between GPUs, over a pool whose jobs are completed
// by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include "sidecar/transport/shm_transport.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using worker::Completion;
using worker::CopySegment;
using worker::GpuMeans;

constexpr size_t kSlots = 4096;

class HandPool final : public worker::CopyPool {
 public:
  struct Job {
    uint64_t tag = 0;
    size_t slots = 0;
    std::vector<uint64_t> destinations;  // of its blocks
    GpuMeans means = GpuMeans::kCopyEngine;
  };
  explicit HandPool(int workers) : jobs(static_cast<size_t>(workers)) {}

  int worker_count() const override { return static_cast<int>(jobs.size()); }
  bool usable(int /*worker*/) const override { return true; }
  size_t free_slots(int worker) const override {
    size_t used = 0;
    for (const Job& job : jobs[static_cast<size_t>(worker)]) used += job.slots;
    return kSlots - used;
  }
  size_t free_places(int /*worker*/) const override { return places; }
  bool Post(int worker, uint64_t tag, std::span<const CopySegment> segments) override {
    if (free_slots(worker) < segments.size()) return false;
    Job job{tag, segments.size(), {}, segments.front().means};
    for (const CopySegment& segment : segments) {
      for (const auto& place : segment.places) job.destinations.push_back(place.destination);
      if (segment.places.empty()) job.destinations.push_back(segment.destination_offset);
    }
    jobs[static_cast<size_t>(worker)].push_back(std::move(job));
    return true;
  }
  size_t Poll(std::span<Completion> completions) override {
    size_t taken = 0;
    for (; taken < completions.size() && !done.empty(); done.pop_front()) {
      completions[taken++] = done.front();
    }
    return taken;
  }
  void Wait(TimePoint /*deadline*/, Mutex* /*driver*/) override {}
  void Nap(TimePoint /*deadline*/, Mutex* /*driver*/) override {}
  void WakeWaiter() override {}
  void TakeOver() override {}
  void HandBack(bool /*wake*/) override {}
  void LookAfresh() override {}
  void Replace(int /*worker*/) override {}

  // The oldest job of each worker is done, as it was asked for or by copy engines.
  void FinishOneEach(bool kernels = true) {
    for (int worker = 0; worker < worker_count(); ++worker) Finish(worker, kernels);
  }
  void Finish(int worker, bool kernels = true) {
    auto& queue = jobs[static_cast<size_t>(worker)];
    if (queue.empty()) return;
    Completion completion;
    completion.tag = queue.front().tag;
    completion.worker = worker;
    completion.means = kernels ? queue.front().means : GpuMeans::kCopyEngine;
    for (const uint64_t block : queue.front().destinations) copied.push_back(block);
    queue.pop_front();
    done.push_back(completion);
  }
  void Lose(int worker) {
    auto& queue = jobs[static_cast<size_t>(worker)];
    for (const Job& job : queue) {
      done.push_back({job.tag, worker, false, ErrorCode::kWorkerLost, 0, {}});
    }
    queue.clear();
  }

  std::vector<std::deque<Job>> jobs;  // of each worker
  std::vector<uint64_t> copied;       // destinations
  size_t places = 65536;
  std::deque<Completion> done;
};

class GpuFeedTest : public ::testing::Test {
 protected:
  // Block i goes to offset i.
  std::shared_ptr<MovePlan> Plan(wire::MemoryKind local, wire::MemoryKind remote, uint32_t blocks) {
    auto plan = std::make_shared<MovePlan>();
    plan->local = {Map(local)};
    plan->remote = {{local == remote ? plan->local.front() : Map(remote)}};
    BlockPair pair;
    pair.unit_bytes = pair.local_stride = pair.remote_stride = 1;
    std::vector<BlockRun> runs;
    for (uint32_t i = 0; i < blocks; ++i) runs.push_back({i, i, 1, i});
    plan->segments.AddRuns({pair}, std::move(runs));
    plan->bytes = blocks;
    return plan;
  }
  std::shared_ptr<MovePlan> Plan(wire::MemoryKind kind, uint32_t blocks) {
    return Plan(kind, kind, blocks);
  }
  std::shared_ptr<const memory::MappedAllocation> Map(wire::MemoryKind kind) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    source.writable = true;
    source.kind = kind;
    source.gpu.form = wire::GpuExport::kPiece;
    source.exporter = "a workload";
    return *memory::MappedAllocation::Create(mapper_, source);
  }
  std::unique_ptr<Operation> Start(wire::MemoryKind kind, uint32_t blocks, int priority = 0) {
    return transport_.Start(Plan(kind, blocks), priority, ++tokens_);
  }
  void Poll() {
    std::vector<uint64_t> attention;
    transport_.Poll(&attention);
  }
  void RunUntil(const Operation& operation, int rounds = 5000, bool kernels = true) {
    for (; !operation.finished() && rounds > 0; --rounds) {
      Poll();
      pool_.FinishOneEach(kernels);
    }
    Poll();
  }
  void EndAll(std::vector<Operation*> operations) {
    for (Operation* operation : operations) operation->Stop();
    for (int i = 0; i < 5000; ++i) {
      pool_.FinishOneEach();
      Poll();
    }
  }
  // Each block once, but for those of jobs that were lost.
  void ExpectAllCopied(uint32_t blocks) {
    std::vector<bool> seen(blocks);
    for (const uint64_t block : pool_.copied) seen[block] = true;
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](bool is) { return is; }));
  }

  static constexpr auto kHost = wire::MemoryKind::kHost;
  static constexpr auto kGpu = wire::MemoryKind::kGpu;
  testing::TestArena arena_{65536};
  worker::FakeCopyPool mapper_;
  HandPool pool_{2};
  ShmTransport transport_{ShmOptions{}, pool_};
  uint64_t tokens_ = 0;
};

TEST_F(GpuFeedTest, KernelsRunInOneWorkerAndEveryBlockIsCopiedOnce) {
  ShmOptions options;
  options.gpu_copies = GpuCopyPolicy::kKernel;  // however slow this machine makes them look
  ShmTransport transport(options, pool_);
  std::vector<uint64_t> attention;
  const auto operation = transport.Start(Plan(kGpu, 20'000), 0, 1);
  transport.Poll(&attention);
  EXPECT_EQ(pool_.jobs[0].size(), 4U);
  EXPECT_TRUE(pool_.jobs[1].empty());
  for (int i = 0; i < 5000 && !operation->finished(); ++i) {
    pool_.FinishOneEach();
    transport.Poll(&attention);
  }
  ASSERT_TRUE(operation->finished());
  EXPECT_EQ(pool_.copied.size(), 20'000U);
  ExpectAllCopied(20'000);
  EXPECT_EQ(operation->progress().gpu_jobs_by_engine, 0U);
  EXPECT_GT(operation->progress().gpu_jobs_by_kernel, 4U);
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
  EXPECT_EQ(operation->progress().gpu_reason, "the GPU's driver has no copy kernel");
  ExpectAllCopied(20'000);
}

TEST_F(GpuFeedTest, ALostPartThatHasNoRoomAtOnceIsPostedInParts) {
  const auto operation = Start(kGpu, 5'000);
  Poll();
  ASSERT_GT(pool_.jobs[0].front().destinations.size(), 100U);
  pool_.places = 100;
  pool_.Lose(0);
  RunUntil(*operation);
  ASSERT_TRUE(operation->finished());
  EXPECT_FALSE(operation->error());
  EXPECT_EQ(operation->progress().bytes, 5'000U);
  EXPECT_EQ(operation->progress().chunks_retried, 5'000U);
  ExpectAllCopied(5'000);
}

TEST_F(GpuFeedTest, SmallTransfersOfLowerPriorityDoNotKeepAKernelWaiting) {
  std::vector<std::unique_ptr<Operation>> small;
  for (int i = 0; i < 40; ++i) small.push_back(Start(kGpu, 1, -5));
  Poll();
  EXPECT_GT(pool_.jobs[0].size(), 4U);
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

// Both ways; the kernels of the other one have their worker full.
TEST_F(GpuFeedTest, WhatIsCopiedWithTheHostIsCopiedByEnginesWhateverIsAskedFor) {
  ShmOptions options;
  options.gpu_copies = GpuCopyPolicy::kKernel;
  ShmTransport transport(options, pool_);
  std::vector<uint64_t> attention;
  const auto large = transport.Start(Plan(kGpu, 60'000), 0, 1);
  transport.Poll(&attention);
  const auto out = transport.Start(Plan(kGpu, kHost, 20'000), 0, 2);
  const auto back = transport.Start(Plan(kHost, kGpu, 3), 0, 3);
  size_t engines[2] = {0, 0};
  for (int round = 0; round < 500 && !(out->finished() && back->finished()); ++round) {
    transport.Poll(&attention);
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
    EXPECT_NE(operation->progress().gpu_reason.find("host"), std::string_view::npos);
  }
  large->Stop();
  for (int round = 0; round < 500 && !large->finished(); ++round) {
    pool_.FinishOneEach();
    transport.Poll(&attention);
  }
  EXPECT_EQ(large->progress().gpu_jobs_by_engine, 0U);
}

}  // namespace
}  // namespace gantry::transport
