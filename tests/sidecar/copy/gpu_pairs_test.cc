// Which GPU's workers copy between a pair of GPUs, when the workers have theirs on several.
#include "tests/sidecar/copy/gpu_feed_fixture.h"

namespace gantry::transport {
namespace {

using worker::GpuMeans;

class GpuPairsTest : public GpuFeedTest {
 protected:
  // Six workers on GPUs 0, 1, 2, 0, 1, 2.
  GpuPairsTest() {
    for (size_t i = 0; i < workers_.gpus_of_workers.size(); ++i)
      workers_.gpus_of_workers[i] = static_cast<int>(i % 3);
  }
  std::shared_ptr<MovePlan> Between(int local, int remote, uint32_t blocks) {
    return Plan(Map(kGpu, local), Map(kGpu, remote), blocks);
  }
  static CopySchedulerOptions By(GpuCopyPolicy policy) {
    CopySchedulerOptions options;
    options.gpu_copies = policy;
    return options;
  }
  std::vector<size_t> JobsOfEach() const {
    std::vector<size_t> counts;
    for (const auto& jobs : workers_.jobs) counts.push_back(jobs.size());
    return counts;
  }
  void Poll(CopyScheduler& transport) {
    std::vector<uint64_t> ready_tokens;
    transport.Poll(&ready_tokens);
  }
  void Finish(CopyScheduler& transport, Operation& operation) {
    operation.Stop();
    for (int i = 0; i < 5000 && !operation.finished(); ++i) {
      workers_.FinishOneEach();
      Poll(transport);
    }
    ASSERT_TRUE(operation.finished());
  }

  HandPool workers_{6};
};

TEST_F(GpuPairsTest, CopyEnginesOfBothGpusOfThePairAreFed) {
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), workers_, workers_);
  const auto operation = transport.Start(Between(0, 2, 20'000), 0, 1);
  Poll(transport);
  const std::vector<size_t> jobs = JobsOfEach();
  for (const size_t near : {0, 2, 3, 5}) EXPECT_GT(jobs[near], 0U) << near;
  for (const size_t far : {1, 4}) EXPECT_EQ(jobs[far], 0U) << far;
  Finish(transport, *operation);
}

TEST_F(GpuPairsTest, AWorkerOfAnotherGpuCopiesWhereNoneIsNear) {
  workers_.gpus_of_workers.assign(6, 1);
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), workers_, workers_);
  const auto operation = transport.Start(Between(0, 2, 20'000), 0, 1);
  Poll(transport);
  for (const size_t jobs : JobsOfEach()) EXPECT_GT(jobs, 0U);
  Finish(transport, *operation);
}

TEST_F(GpuPairsTest, AWorkerWithoutAGpuGetsNoneOfIt) {
  workers_.gpus_of_workers = {-1, 0, -1, 1, -1, -1};
  for (const GpuCopyPolicy policy : {GpuCopyPolicy::kEngines, GpuCopyPolicy::kKernel}) {
    CopyScheduler transport(By(policy), workers_, workers_);
    const auto operation = transport.Start(Between(0, 1, 20'000), 0, 1);
    const auto few = transport.Start(Between(1, 1, 1), 0, 2);
    const auto offload = transport.Start(Plan(Map(kGpu, 1), Map(kHost), 100), 0, 3);
    Poll(transport);
    const std::vector<size_t> jobs = JobsOfEach();
    for (const size_t without : {0, 2, 4, 5}) EXPECT_EQ(jobs[without], 0U) << without;
    EXPECT_GT(jobs[1] + jobs[3], 0U);
    for (auto* one : {operation.get(), few.get(), offload.get()}) Finish(transport, *one);
  }
}

TEST_F(GpuPairsTest, TheKernelIsOneOfTheDestinationsGpu) {
  CopyScheduler transport(By(GpuCopyPolicy::kKernel), workers_, workers_);
  const auto read = transport.Start(Between(2, 1, 20'000), 0, 1);
  Poll(transport);
  EXPECT_EQ(JobsOfEach(), (std::vector<size_t>{0, 0, 4, 0, 0, 0}));
  Finish(transport, *read);
  auto plan = Between(2, 1, 20'000);
  plan->operation = wire::Operation::kWrite;
  const auto write = transport.Start(plan, 0, 2);
  Poll(transport);
  EXPECT_EQ(JobsOfEach(), (std::vector<size_t>{0, 4, 0, 0, 0, 0}));
  Finish(transport, *write);
}

TEST_F(GpuPairsTest, TheCostsOfAGpuChooseWhatCopiesThere) {
  worker::GpuCopyCosts of_the_first;
  CopySchedulerOptions options;
  options.costs_of = [&](int gpu) { return gpu == 0 ? of_the_first : worker::GpuCopyCosts(); };
  CopyScheduler transport(options, workers_, workers_);
  const auto before = transport.Start(Between(0, 0, 20'000), 0, 1);
  Poll(transport);
  ASSERT_FALSE(workers_.jobs[0].empty());
  EXPECT_EQ(workers_.jobs[0].front().means, GpuMeans::kKernel);
  Finish(transport, *before);
  of_the_first = {.block_ns = 1, .kernel_mb_s = 1};  // as if they had been measured meanwhile
  const auto there = transport.Start(Between(0, 0, 20'000), 0, 2);
  const auto elsewhere = transport.Start(Between(1, 1, 20'000), 0, 3);
  Poll(transport);
  ASSERT_FALSE(workers_.jobs[0].empty() || workers_.jobs[1].empty());
  EXPECT_EQ(workers_.jobs[0].front().means, GpuMeans::kCopyEngine);
  EXPECT_EQ(workers_.jobs[1].front().means, GpuMeans::kKernel);
  Finish(transport, *there);
  Finish(transport, *elsewhere);
}

// A kernel that takes milliseconds says that others compute on its GPU.
TEST_F(GpuPairsTest, TheKernelRunsOnTheGpuThatIsIdle) {
  CopyScheduler transport(By(GpuCopyPolicy::kAuto), workers_, workers_);
  const auto operation = transport.Start(Between(0, 1, 60'000), 0, 1);
  Poll(transport);
  EXPECT_EQ(JobsOfEach(), (std::vector<size_t>{2, 0, 0, 0, 0, 0})) << "a few go ahead";
  workers_.Finish(0, true, milliseconds(20));
  Poll(transport);
  EXPECT_GT(JobsOfEach()[1], 0U) << "GPU 1 does not know of it";
  EXPECT_EQ(workers_.jobs[1].front().means, GpuMeans::kKernel);
  workers_.Finish(1, true, milliseconds(20));
  Poll(transport);
  EXPECT_GT(JobsOfEach()[3] + JobsOfEach()[4], 0U) << "both are busy: copy engines";
  for (const size_t worker : {3, 4}) {
    for (const auto& job : workers_.jobs[worker]) EXPECT_EQ(job.means, GpuMeans::kCopyEngine);
  }
  Finish(transport, *operation);
}

// Blocks of different size are copied by different means: neither waits behind the other.
TEST_F(GpuPairsTest, LargeBlocksGoOnBesideAKernelOfSmallOnes) {
  CopyScheduler transport(By(GpuCopyPolicy::kAuto), workers_, workers_);
  const auto small = transport.Start(Between(0, 1, 60'000), 0, 1);
  auto plan = Between(0, 1, 1'000);
  plan->bytes = 1'000ULL << 20;  // as if they were long
  const auto large = transport.Start(plan, 0, 2);
  Poll(transport);
  EXPECT_EQ(workers_.jobs[0].front().means, GpuMeans::kKernel);
  size_t engine_jobs = 0;
  for (const auto& jobs : workers_.jobs) {
    for (const auto& job : jobs) engine_jobs += job.means == GpuMeans::kCopyEngine ? 1 : 0;
  }
  EXPECT_EQ(engine_jobs, 1U);
  Finish(transport, *small);
  Finish(transport, *large);
}

// A kernel of the second GPU copies the small ones, though by the costs of the first engines would.
TEST_F(GpuPairsTest, LargeBlocksGoOnBesideAKernelOfEitherGpu) {
  CopySchedulerOptions options;
  options.gpu_turn_bytes = 1;
  options.costs_of = [](int gpu) {
    return gpu == 0 ? worker::GpuCopyCosts{.block_ns = 1, .kernel_mb_s = 1}
                    : worker::GpuCopyCosts();
  };
  CopyScheduler transport(options, workers_, workers_);
  auto plan = Between(0, 1, 60'000);
  plan->bytes = 4'000ULL << 20;  // as if they were longer, and those below long
  const auto small = transport.Start(plan, 0, 1);
  plan = Between(0, 1, 4'000);
  plan->bytes = 4'000ULL << 20;
  const auto large = transport.Start(plan, 0, 2);
  Poll(transport);
  ASSERT_FALSE(workers_.jobs[1].empty());
  EXPECT_EQ(workers_.jobs[1].front().means, GpuMeans::kKernel);
  size_t engine_jobs = 0;
  for (const auto& jobs : workers_.jobs) {
    for (const auto& job : jobs) engine_jobs += job.means == GpuMeans::kCopyEngine ? 1 : 0;
  }
  EXPECT_EQ(engine_jobs, 4U) << "none waits behind the kernel";
  Finish(transport, *small);
  Finish(transport, *large);
}

// By the costs of the second GPU kernels would copy the first transfer, but nothing runs them
// there.
TEST_F(GpuPairsTest, AGpuWithoutAUsableWorkerIsNotAskedForTheTurn) {
  CopySchedulerOptions options;
  options.costs_of = [](int gpu) {
    return gpu == 0 ? worker::GpuCopyCosts{.block_ns = 1, .kernel_mb_s = 1}
                    : worker::GpuCopyCosts();
  };
  workers_.unusable = {1, 4};
  CopyScheduler transport(options, workers_, workers_);
  auto plan = Between(0, 1, 60'000);
  plan->bytes = 4'000ULL << 20;  // as if they were longer, and those below long
  const auto small = transport.Start(plan, 0, 1);
  plan = Between(0, 1, 4'000);
  plan->bytes = 4'000ULL << 20;
  const auto large = transport.Start(plan, 0, 2);
  Poll(transport);
  EXPECT_TRUE(small->progress().first_posted);
  EXPECT_FALSE(large->progress().first_posted) << "engines copy both, one after the other";
  Finish(transport, *small);
  Finish(transport, *large);
}

TEST_F(GpuPairsTest, EveryWorkerWithAGpuCopiesToAndFromTheHostButForThoseOfKernels) {
  CopyScheduler transport(By(GpuCopyPolicy::kAuto), workers_, workers_);
  const auto operation = transport.Start(Plan(Map(kGpu, 0), Map(kHost), 60'000), 0, 1);
  Poll(transport);
  const std::vector<size_t> jobs = JobsOfEach();
  for (const size_t kernels : {0, 1, 2}) EXPECT_EQ(jobs[kernels], 0U);
  for (const size_t others : {3, 4, 5}) EXPECT_GT(jobs[others], 0U);
  Finish(transport, *operation);
}

TEST_F(GpuPairsTest, PairsDoNotWaitForEachOther) {
  CopyScheduler transport(By(GpuCopyPolicy::kEngines), workers_, workers_);
  const auto first = transport.Start(Between(0, 0, 60'000), 5, 1);
  const auto second = transport.Start(Between(1, 2, 60'000), 5, 2);
  Poll(transport);
  for (const size_t jobs : JobsOfEach()) EXPECT_GT(jobs, 0U);
  Finish(transport, *first);
  Finish(transport, *second);
}

TEST_F(GpuPairsTest, NoKernelFollowsAddressesThatItsGpuDoesNotReach) {
  workers_.peers = false;
  for (const GpuCopyPolicy policy : {GpuCopyPolicy::kAuto, GpuCopyPolicy::kKernel}) {
    CopyScheduler transport(By(policy), workers_, workers_);
    const auto apart = transport.Start(Between(0, 2, 20'000), 0, 1);
    const auto within = transport.Start(Between(1, 1, 20'000), 0, 2);
    Poll(transport);
    for (const size_t of_pair : {0, 2, 3, 5}) {
      for (const HandPool::Job& job : workers_.jobs[of_pair]) {
        EXPECT_EQ(job.means, GpuMeans::kCopyEngine) << of_pair;
      }
    }
    EXPECT_EQ(apart->progress().gpu_reason, GpuCopyReason::kNoPeerAccess);
    ASSERT_FALSE(workers_.jobs[1].empty());
    EXPECT_EQ(workers_.jobs[1].front().means, GpuMeans::kKernel);
    EXPECT_NE(within->progress().gpu_reason, GpuCopyReason::kNoPeerAccess);
    Finish(transport, *apart);
    Finish(transport, *within);
  }
}

}  // namespace
}  // namespace gantry::transport
