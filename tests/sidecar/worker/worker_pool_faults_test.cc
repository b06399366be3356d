// Workers that die, hang, or write nonsense; and mappings that one of them cannot make.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

constexpr uint64_t kWholeBytes = 16 << 20;

char StateOf(const std::filesystem::path& task) {
  std::ifstream file(task / "stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = stat.rfind(')');
  return name_end + 2 < stat.size() ? stat[name_end + 2] : 'Z';
}

// SIGSTOP, and until every thread has stopped: the signal is asynchronous.
void Stop(pid_t pid) {
  ASSERT_EQ(::kill(pid, SIGSTOP), 0);
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  for (const auto& task : std::filesystem::directory_iterator(process / "task")) {
    while (StateOf(task.path()) != 'T') std::this_thread::yield();
  }
}

class WorkerPoolFaults : public ::testing::Test {
 protected:
  WorkerPoolFaults() { Start({}); }

  void Start(WorkerPoolOptions options) {
    options.restart_backoff_min_ms = milliseconds(1);
    options.restart_backoff_max_ms = milliseconds(20);
    pool_.reset();
    auto pool = WorkerPool::Create(options);
    ASSERT_TRUE(pool) << pool.error().message;
    pool_ = std::move(*pool);
    from_ = pool_->Map(source_.source()).value();
    to_ = pool_->Map(destination_.source()).value();
  }
  pid_t PidOf(int worker) const { return pool_->workers()[static_cast<size_t>(worker)].pid; }
  CopySegment Whole() const { return {from_, to_, 0, 0, kWholeBytes, 0, 0, 1}; }
  bool PostWhole(int worker, uint64_t tag) {
    const CopySegment segment = Whole();
    return pool_->Post(worker, tag, {&segment, 1});
  }
  std::vector<Completion> Await(size_t count) {
    std::vector<Completion> completions(count);
    const TimePoint limit = Clock::now() + std::chrono::seconds(30);
    size_t taken = 0;
    while (taken < count && Clock::now() < limit) {
      taken += pool_->Poll(std::span(completions).subspan(taken));
      if (taken < count) WaitAlone(*pool_, limit);
    }
    completions.resize(taken);
    EXPECT_EQ(taken, count);
    return completions;
  }
  // Until the worker is usable again; the engine would poll anyway.
  void AwaitUsable(int worker) {
    const TimePoint limit = Clock::now() + std::chrono::seconds(30);
    Completion completion;
    while (!pool_->usable(worker) && Clock::now() < limit) {
      EXPECT_EQ(pool_->Poll({&completion, 1}), 0U);
      if (!pool_->usable(worker)) WaitAlone(*pool_, limit);
    }
    EXPECT_TRUE(pool_->usable(worker));
  }
  void ExpectCopies(int worker) {
    std::memset(destination_.data(), 0, kWholeBytes);
    ASSERT_TRUE(PostWhole(worker, 1234));
    const auto completions = Await(1);
    ASSERT_EQ(completions.size(), 1U);
    EXPECT_TRUE(completions[0].ok);
    EXPECT_EQ(std::memcmp(source_.data(), destination_.data(), kWholeBytes), 0);
  }

  TestArena source_{kWholeBytes};
  TestArena destination_{kWholeBytes};
  std::unique_ptr<WorkerPool> pool_;
  memory::MappingId from_;
  memory::MappingId to_;
};

TEST_F(WorkerPoolFaults, KilledMidJobCompletesEveryTagOnceAndIsReplaced) {
  for (int round = 0; round < 10; ++round) {
    constexpr uint64_t kJobs = 20;
    for (uint64_t tag = 0; tag < kJobs / 2; ++tag) ASSERT_TRUE(PostWhole(0, tag));
    // Tens of gigabytes: the worker is at this one when the signal comes.
    const std::vector<CopySegment> endless(2000, Whole());
    ASSERT_TRUE(pool_->Post(0, kJobs / 2, endless));
    for (uint64_t tag = kJobs / 2 + 1; tag < kJobs; ++tag) ASSERT_TRUE(PostWhole(0, tag));
    const auto first = Await(1);
    ASSERT_EQ(::kill(PidOf(0), SIGKILL), 0);
    const auto rest = Await(kJobs - first.size());
    std::vector<Completion> all = first;
    all.insert(all.end(), rest.begin(), rest.end());
    ASSERT_EQ(all.size(), kJobs);
    bool lost = false;
    for (uint64_t tag = 0; tag < kJobs; ++tag) {
      EXPECT_EQ(all[tag].tag, tag) << "in the order of posting";
      EXPECT_TRUE(all[tag].ok || all[tag].code == ErrorCode::kWorkerLost);
      EXPECT_FALSE(lost && all[tag].ok) << "what was done comes before what was lost";
      lost = lost || !all[tag].ok;
    }
    EXPECT_TRUE(lost);
    AwaitUsable(0);
    ExpectCopies(0);
  }
  EXPECT_EQ(pool_->workers()[0].restarts, 10U);
  EXPECT_EQ(pool_->workers()[1].restarts, 0U);
  EXPECT_EQ(pool_->workers()[0].last_exit, "signal 9");
}

TEST_F(WorkerPoolFaults, NoByteMovesAfterTheLoss) {
  const std::vector<CopySegment> endless(2000, Whole());
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(pool_->Post(0, 1, endless));
    std::this_thread::sleep_for(milliseconds(5));
    const pid_t pid = PidOf(0);
    pool_->Replace(0);
    Await(1);
    // Reaped, so that no thread of it is left; a zombie would still answer.
    EXPECT_EQ(::kill(pid, 0), -1);
    std::memset(destination_.data(), 0, kWholeBytes);
    const std::vector<std::byte> before(kWholeBytes);
    std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(std::memcmp(destination_.data(), before.data(), kWholeBytes), 0);
    AwaitUsable(0);
  }
}

TEST_F(WorkerPoolFaults, CompletionsLeftInTheRingAreHonoured) {
  constexpr uint64_t kJobs = 20;
  const CopySegment small = {from_, to_, 0, 0, 64, 0, 0, 1};
  for (uint64_t tag = 0; tag < kJobs; ++tag) ASSERT_TRUE(pool_->Post(0, tag, {&small, 1}));
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_EQ(::kill(PidOf(0), SIGKILL), 0);
  while (pool_->workers()[0].state != WorkerState::kReaped) std::this_thread::yield();
  for (const Completion& completion : Await(kJobs)) EXPECT_TRUE(completion.ok);
  EXPECT_EQ(pool_->workers()[0].jobs_done, kJobs);
  EXPECT_EQ(pool_->workers()[0].jobs_lost, 0U);
}

TEST_F(WorkerPoolFaults, AStoppedWorkerIsReplacedAndItsJobsAreLost) {
  Stop(PidOf(0));
  ASSERT_TRUE(PostWhole(0, 1));
  Completion completion;
  WaitAlone(*pool_, Clock::now() + milliseconds(50));
  EXPECT_EQ(pool_->Poll({&completion, 1}), 0U);
  ExpectCopies(1);
  pool_->Replace(0);
  EXPECT_FALSE(pool_->usable(0));
  EXPECT_EQ(pool_->free_slots(0), 0U);
  EXPECT_FALSE(PostWhole(0, 2)) << "a worker that is being replaced takes no work";
  const auto lost = Await(1);
  ASSERT_EQ(lost.size(), 1U);
  EXPECT_EQ(lost[0].tag, 1U);
  EXPECT_FALSE(lost[0].ok);
  EXPECT_EQ(lost[0].code, ErrorCode::kWorkerLost);
  AwaitUsable(0);
  ExpectCopies(0);
}

TEST_F(WorkerPoolFaults, MapGoesOnWithoutAHungWorkerAndReplacesIt) {
  Stop(PidOf(1));
  const TestArena more(4096);
  const TimePoint begin = Clock::now();
  const auto mapped = pool_->Map(more.source());
  ASSERT_TRUE(mapped) << mapped.error().message;
  EXPECT_GE(Clock::now() - begin, WorkerPoolOptions().map_lag_ms);
  EXPECT_LT(Clock::now() - begin, milliseconds(3'500)) << "the other one had answered";
  AwaitUsable(1);
  EXPECT_EQ(pool_->workers()[1].maps_failed, 1U);
  EXPECT_EQ(pool_->workers()[1].maps_succeeded, 5U) << "two at first, three in the new worker";
  // The new worker has what was mapped while it was away.
  const CopySegment segment = {from_, *mapped, 0, 0, 4096, 0, 0, 1};
  ASSERT_TRUE(pool_->Post(1, 5, {&segment, 1}));
  EXPECT_TRUE(Await(1).front().ok);
}

TEST_F(WorkerPoolFaults, MapWaitsOnlyTheWholeTimeoutWhenNoWorkerAnswers) {
  WorkerPoolOptions options;
  options.map_timeout_ms = milliseconds(500);
  Start(options);
  Stop(PidOf(0));
  Stop(PidOf(1));
  const TestArena more(4096);
  const auto mapped = pool_->Map(more.source());
  ASSERT_FALSE(mapped);
  EXPECT_EQ(mapped.error().code, ErrorCode::kWorkerLost);
  AwaitUsable(0);
  AwaitUsable(1);
  EXPECT_TRUE(pool_->Map(more.source()));
}

TEST_F(WorkerPoolFaults, UnmapGoesOnPastAHungWorker) {
  WorkerPoolOptions options;
  options.map_lag_ms = milliseconds(300);
  Start(options);
  Stop(PidOf(0));
  EXPECT_TRUE(pool_->Unmap(to_)) << "the hung one is dead, and holds nothing any more";
  EXPECT_EQ(pool_->workers()[1].mappings, 1U);
  AwaitUsable(0);
  EXPECT_EQ(pool_->workers()[0].mappings, 1U);
}

TEST_F(WorkerPoolFaults, AFailedMapLeavesNothingBehind) {
  memory::AllocationSource source = source_.source();
  source.size += 4096;
  const auto refused = pool_->Map(source);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kFdTooShort);
  for (const WorkerStatus& worker : pool_->workers()) {
    EXPECT_EQ(worker.mappings, 2U);
    EXPECT_EQ(worker.maps_succeeded, 2U);
    EXPECT_EQ(worker.maps_failed, 1U);
  }
  const TestArena next(4096);
  const auto id = pool_->Map(next.source());
  ASSERT_TRUE(id);
  EXPECT_EQ(id->slot, 2U) << "the slot of the failed one";
}

// Limits the memory of one worker, so that it alone cannot map what the other can.
TEST_F(WorkerPoolFaults, AMapThatOneWorkerRefusesIsRolledBackInAll) {
  const rlimit limit = {0, 0};
  if (::prlimit(PidOf(1), RLIMIT_AS, &limit, nullptr) != 0) GTEST_SKIP() << "prlimit is forbidden";
  const TestArena more(1 << 20);
  const auto refused = pool_->Map(more.source());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kDeviceError);
  EXPECT_EQ(pool_->workers()[0].mappings, 2U);
  const std::string maps = "/proc/" + std::to_string(PidOf(0)) + "/maps";
  std::ifstream file(maps);
  int test_mappings = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.find("memfd:test-arena") != std::string::npos) ++test_mappings;
  }
  EXPECT_EQ(test_mappings, 2) << "the worker that could map it has unmapped it";
}

// No pool in this process: sanitizers do not let a process with threads fork.
TEST(WorkerPoolFaultsOfThePool, WorkersEndWhenThePoolIsKilled) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto pool = WorkerPool::Create({});
    const pid_t pid = pool ? (*pool)->workers()[0].pid : 0;
    if (::write(ends[1], &pid, sizeof(pid)) < 0) ::_exit(1);
    ::pause();
  }
  ::close(ends[1]);
  pid_t worker = 0;
  ASSERT_EQ(::read(ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  ASSERT_GT(worker, 0);
  // A stopped one does not see that its socket closed, and must die all the same.
  Stop(worker);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const std::filesystem::path process = "/proc/" + std::to_string(worker);
  const TimePoint limit = Clock::now() + std::chrono::seconds(5);
  while (StateOf(process) != 'Z' && Clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(StateOf(process), 'Z') << "neither dead nor reaped by its new parent";
  ::close(ends[0]);
}

TEST(WorkerPoolFaultsOfThePool, CreateSaysWhyAWorkerDidNotStart) {
  WorkerPoolOptions options;
  options.executable = "/bin/false";
  const auto pool = WorkerPool::Create(options);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, ErrorCode::kWorkerLost);
  EXPECT_NE(pool.error().message.find("exit code 1"), std::string::npos) << pool.error().message;
  options.executable = "/nonexistent";
  EXPECT_FALSE(WorkerPool::Create(options));
  options.workers = 0;
  EXPECT_FALSE(WorkerPool::Create(options));
}

}  // namespace
}  // namespace gantry::worker
