// What every CopyPool does, whether its workers are processes or the fake's.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

constexpr uint64_t kSize = 1 << 20;

struct Real {
  static std::unique_ptr<WorkerPool> Create() {
    WorkerPoolOptions options;
    options.restart_backoff_min_ms = milliseconds(1);
    auto pool = WorkerPool::Create(options);
    EXPECT_TRUE(pool) << pool.error().message;
    return std::move(*pool);
  }
};
struct Fake {
  static std::unique_ptr<FakeCopyPool> Create() { return std::make_unique<FakeCopyPool>(2); }
};

template <typename Kind>
class CopyPoolContract : public ::testing::Test {
 protected:
  std::vector<Completion> Await(size_t count) {
    std::vector<Completion> completions(count);
    const TimePoint limit = Clock::now() + std::chrono::seconds(20);
    size_t taken = 0;
    while (taken < count && Clock::now() < limit) {
      taken += pool_->Poll(std::span(completions).subspan(taken));
      if (taken < count) WaitAlone(*pool_, limit);
    }
    completions.resize(taken);
    EXPECT_EQ(taken, count);
    return completions;
  }
  memory::MappingId MapOf(const TestArena& memory, bool writable = true) {
    auto id = pool_->Map(memory.source(writable));
    EXPECT_TRUE(id);
    return id ? *id : memory::MappingId{};
  }
  Completion RunJob(const std::vector<CopySegment>& segments) {
    EXPECT_TRUE(pool_->Post(0, 1, segments));
    const auto completions = Await(1);
    return completions.empty() ? Completion{} : completions.front();
  }

  TestArena source_{kSize};
  TestArena destination_{kSize, 0};
  decltype(Kind::Create()) pool_ = Kind::Create();
};

using Kinds = ::testing::Types<Real, Fake>;
TYPED_TEST_SUITE(CopyPoolContract, Kinds);

TYPED_TEST(CopyPoolContract, EveryWorkerCopies) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  ASSERT_EQ(this->pool_->worker_count(), 2);
  for (int worker = 0; worker < 2; ++worker) {
    ASSERT_TRUE(this->pool_->usable(worker));
    EXPECT_GT(this->pool_->free_slots(worker), 0U);
    const uint64_t half = kSize / 2 * static_cast<uint64_t>(worker);
    const CopySegment segment = {from, to, half, half, kSize / 2, 0, 0, 1};
    ASSERT_TRUE(this->pool_->Post(worker, 40 + static_cast<uint64_t>(worker), {&segment, 1}));
    const auto completions = this->Await(1);
    ASSERT_EQ(completions.size(), 1U);
    EXPECT_EQ(completions[0].tag, 40 + static_cast<uint64_t>(worker));
    EXPECT_EQ(completions[0].worker, worker);
    EXPECT_TRUE(completions[0].ok);
    EXPECT_GT(completions[0].copy_nanoseconds, 0U);
  }
  EXPECT_TRUE(std::ranges::equal(this->source_.bytes(), this->destination_.bytes()));
}

TYPED_TEST(CopyPoolContract, CopiesStridedBlocks) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  EXPECT_TRUE(this->RunJob({{from, to, 64, 0, 16, 128, 16, 100}}).ok);
  for (uint64_t block = 0; block < 100; ++block) {
    const auto* expected = this->source_.data() + 64 + block * 128;
    EXPECT_TRUE(std::equal(expected, expected + 16, this->destination_.data() + block * 16));
  }
  EXPECT_EQ(this->destination_.data()[1600], 0);
}

TYPED_TEST(CopyPoolContract, OneCompletionForEachJob) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  constexpr uint64_t kJobs = 20'000;
  std::vector<int> seen(kJobs);
  std::minstd_rand random(1);
  std::vector<Completion> completions(64);
  uint64_t posted = 0;
  uint64_t taken = 0;
  const TimePoint limit = Clock::now() + std::chrono::seconds(40);
  while (taken < kJobs && Clock::now() < limit) {
    for (int worker = 0; worker < 2 && posted < kJobs; ++worker) {
      const std::vector<CopySegment> segments(1 + random() % 4, {from, to, 0, 0, 64, 0, 0, 1});
      if (this->pool_->Post(worker, posted, segments)) ++posted;
    }
    const size_t count = this->pool_->Poll(completions);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(completions[i].ok);
      ++seen[completions[i].tag];
    }
    taken += count;
    if (count == 0) WaitAlone(*this->pool_, limit);
  }
  EXPECT_EQ(std::ranges::count(seen, 1), static_cast<int64_t>(kJobs));
}

TYPED_TEST(CopyPoolContract, RefusesAStaleMapping) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  ASSERT_TRUE(this->pool_->Unmap(from));
  const auto again = this->MapOf(this->source_);
  EXPECT_EQ(again.slot, from.slot);
  EXPECT_NE(again.generation, from.generation);
  const Completion stale = this->RunJob({{from, to, 0, 0, 64, 0, 0, 1}});
  EXPECT_FALSE(stale.ok);
  EXPECT_EQ(stale.code, ErrorCode::kStaleGeneration);
  EXPECT_TRUE(this->RunJob({{again, to, 0, 0, 64, 0, 0, 1}}).ok);
  const Status twice = this->pool_->Unmap(from);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, ErrorCode::kStaleGeneration);
}

TYPED_TEST(CopyPoolContract, RefusesWhatLiesOutsideOrIsReadOnly) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  const auto read_only = this->MapOf(this->destination_, /*writable=*/false);
  EXPECT_EQ(this->RunJob({{from, to, kSize, 0, 1, 0, 0, 1}}).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(this->RunJob({{from, to, 0, 1, kSize, 0, 0, 1}}).code, ErrorCode::kOutOfRange);
  EXPECT_EQ(this->RunJob({{from, read_only, 0, 0, 1, 0, 0, 1}}).code, ErrorCode::kFdReadOnly);
  EXPECT_EQ(this->destination_.data()[0], 0);
}

TYPED_TEST(CopyPoolContract, TakesAllSegmentsOrNone) {
  const auto from = this->MapOf(this->source_);
  const std::vector<CopySegment> segments(100'000, {from, from, 0, 0, 1, 0, 0, 1});
  EXPECT_FALSE(this->pool_->Post(0, 1, segments));
  EXPECT_FALSE(this->pool_->Post(0, 1, {}));
  Completion completion;
  EXPECT_EQ(this->pool_->Poll({&completion, 1}), 0U);
}

TYPED_TEST(CopyPoolContract, WaitEndsAtTheDeadlineAndByWakeWaiter) {
  // It may end early, and does when a worker became usable; but not forever.
  int early = 0;
  TimePoint start = Clock::now();
  WaitAlone(*this->pool_, start + milliseconds(30));
  for (; Clock::now() < start + milliseconds(30) && early < 10; ++early) {
    start = Clock::now();
    WaitAlone(*this->pool_, start + milliseconds(30));
  }
  EXPECT_LT(early, 10);
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    this->pool_->WakeWaiter();
  });
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  WaitAlone(*this->pool_, limit);
  EXPECT_LT(Clock::now(), limit);
  waker.join();
  this->pool_->WakeWaiter();  // before Wait: not lost
  WaitAlone(*this->pool_, limit);
  EXPECT_LT(Clock::now(), limit);
}

TYPED_TEST(CopyPoolContract, AWaitThatIgnoresCompletionsIsEndedByWakeWaiterAlone) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  const CopySegment segment = {from, to, 0, 0, kSize, 0, 0, 1};
  // What a worker that has just become ready has to say may come late, and wakes it.
  bool slept = false;
  for (uint64_t tag = 1; tag <= 5 && !slept; ++tag) {
    ASSERT_TRUE(this->pool_->Post(0, tag, {&segment, 1}));
    const TimePoint start = Clock::now();
    WaitIgnoringCompletionsAlone(*this->pool_, start + milliseconds(50));
    slept = Clock::now() >= start + milliseconds(50);
    EXPECT_EQ(this->Await(1).size(), 1U);
  }
  EXPECT_TRUE(slept);

  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    this->pool_->WakeWaiter();
  });
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  WaitIgnoringCompletionsAlone(*this->pool_, limit);
  EXPECT_LT(Clock::now(), limit);
  waker.join();
  this->pool_->WakeWaiter();  // before the wait: not lost
  WaitIgnoringCompletionsAlone(*this->pool_, limit);
  EXPECT_LT(Clock::now(), limit);
}

TYPED_TEST(CopyPoolContract, WhileItsWaiterSleepsAnotherMayDrive) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  Mutex driver;
  std::atomic<bool> ends = false;
  std::thread waiter([&] {
    const MutexLock lock(driver);
    while (!ends) this->pool_->Wait(Clock::now() + std::chrono::seconds(20), &driver);
  });
  const CopySegment segment = {from, to, 0, 0, kSize, 0, 0, 1};
  for (uint64_t tag = 1; tag <= 100; ++tag) {
    const MutexLock lock(driver);
    this->pool_->BeginDriving();
    this->pool_->ClearWakeRequests();
    ASSERT_TRUE(this->pool_->Post(0, tag, {&segment, 1}));
    Completion completion;
    const TimePoint limit = Clock::now() + std::chrono::seconds(20);
    while (this->pool_->Poll({&completion, 1}) == 0 && Clock::now() < limit)
      std::this_thread::yield();
    EXPECT_EQ(completion.tag, tag);
    this->pool_->EndDriving(/*wake=*/tag % 2 == 0);
  }
  ends = true;
  const TimePoint start = Clock::now();
  this->pool_->WakeWaiter();
  waiter.join();
  EXPECT_LT(Clock::now(), start + std::chrono::seconds(10));
}

// What came while another drove, and what is still under way then, wakes the waiter.
TYPED_TEST(CopyPoolContract, NothingIsLostWhenTheDriverHandsBack) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  const CopySegment segment = {from, to, 0, 0, kSize, 0, 0, 1};
  Mutex driver;
  std::atomic<uint64_t> taken = 0;
  std::atomic<uint64_t> woken = 0;
  std::atomic<bool> ends = false;
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  std::thread waiter([&] {
    const MutexLock lock(driver);
    while (!ends && Clock::now() < limit) {
      this->pool_->Wait(limit, &driver);
      ++woken;
      Completion completion;
      while (this->pool_->Poll({&completion, 1}) == 1) ++taken;
    }
  });
  for (uint64_t job = 1; job <= 200 && Clock::now() < limit; ++job) {
    {
      const MutexLock lock(driver);
      this->pool_->BeginDriving();
      this->pool_->ClearWakeRequests();
      ASSERT_TRUE(this->pool_->Post(0, job, {&segment, 1}));
      if (job % 4 < 2) std::this_thread::sleep_for(microseconds(200));  // completed by now
      this->pool_->EndDriving(/*wake=*/false);
    }
    while (taken < job && Clock::now() < limit) std::this_thread::yield();
  }
  EXPECT_EQ(taken, 200U);
  for (uint64_t request = 0; request < 50 && Clock::now() < limit; ++request) {
    const uint64_t before = woken;
    {
      const MutexLock lock(driver);
      this->pool_->BeginDriving();
      this->pool_->ClearWakeRequests();
      this->pool_->WakeWaiter();  // by whoever has something for the driver
      this->pool_->EndDriving(/*wake=*/false);
    }
    while (woken == before && Clock::now() < limit) std::this_thread::yield();
  }
  ends = true;
  this->pool_->WakeWaiter();
  waiter.join();
  EXPECT_LT(Clock::now(), limit);
}

TYPED_TEST(CopyPoolContract, AReplacedWorkerComesBackWithItsMappings) {
  const auto from = this->MapOf(this->source_);
  const auto to = this->MapOf(this->destination_);
  this->pool_->Replace(0);
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  Completion completion;
  do {
    EXPECT_EQ(this->pool_->Poll({&completion, 1}), 0U);
    if (!this->pool_->usable(0)) WaitAlone(*this->pool_, limit);
  } while (!this->pool_->usable(0) && Clock::now() < limit);
  EXPECT_TRUE(this->RunJob({{from, to, 0, 0, kSize, 0, 0, 1}}).ok);
  EXPECT_TRUE(std::ranges::equal(this->source_.bytes(), this->destination_.bytes()));
}

TYPED_TEST(CopyPoolContract, RefusesToMapAFileThatIsTooShort) {
  memory::AllocationSource source = this->source_.source();
  source.size += 4096;
  const auto id = this->pool_->Map(source);
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, ErrorCode::kFdTooShort);
}

}  // namespace
}  // namespace gantry::worker
