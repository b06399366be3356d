#include "sidecar/copy/staged_copies.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestArena;

constexpr uint64_t kBytes = 64 * 1024;

// To the copies memory is memory: the host's stands for a GPU's.
class StagedCopiesTest : public ::testing::Test {
 protected:
  ~StagedCopiesTest() override { CloseDriven(); }

  std::shared_ptr<const memory::MappedAllocation> Map(const TestArena& arena) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena.Fd());
    source.size = arena.size();
    source.writable = true;
    return *memory::MappedAllocation::Create(pool_, source);
  }
  StagedCopy Copy(bool to_buffer, uint64_t offset, uint64_t stage_offset, uint64_t bytes) {
    StagedCopy copy;
    copy.to_buffer = to_buffer;
    copy.ranges = {{memory_, offset, stage_offset, bytes}};
    copy.owner = this;
    copy.done = [this](const Status& status) { outcomes_.push_back(status); };
    return copy;
  }
  void Drive(size_t outcomes, milliseconds time = milliseconds(5'000)) {
    const TimePoint limit = Clock::now() + time;
    while (outcomes_.size() < outcomes && Clock::now() < limit) DriveOnce();
  }
  void DriveOnce() {
    std::vector<uint64_t> ready_tokens;
    const bool any = scheduler_.Poll(&ready_tokens).progressed;
    EXPECT_TRUE(ready_tokens.empty());  // transfers know nothing of these
    if (!copies_.Poll() && !any) std::this_thread::sleep_for(milliseconds(1));
  }
  void CloseDriven() {
    std::atomic<bool> closed = false;
    std::thread closing([&] {
      copies_.Close();
      closed = true;
    });
    while (!closed) DriveOnce();
    closing.join();
  }

  worker::FakeCopyPool pool_{2};
  CopyScheduler scheduler_{{}, pool_, pool_};
  TestArena arena_{kBytes, 1};
  TestArena stage_arena_{kBytes, 2};
  std::shared_ptr<const memory::MappedAllocation> memory_ = Map(arena_);
  std::atomic<int> calls_at_ = 0;
  StagedCopies copies_{scheduler_, Map(stage_arena_), [] {},
                       [this](TimePoint, const std::function<void()>&) { ++calls_at_; }};
  std::vector<Status> outcomes_;
};

TEST_F(StagedCopiesTest, MovesTheRangesBothWaysAndNothingElse) {
  const std::string memory(arena_.data(), arena_.data() + kBytes);
  std::string stage(stage_arena_.data(), stage_arena_.data() + kBytes);
  copies_.Start(Copy(false, 17, 4099, 1001));
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]);
  stage.replace(4099, 1001, memory, 17, 1001);
  EXPECT_EQ(std::string(stage_arena_.data(), stage_arena_.data() + kBytes), stage);
  std::string there = memory;
  copies_.Start(Copy(true, 30001, 5, 777));
  Drive(2);
  there.replace(30001, 777, stage, 5, 777);
  EXPECT_EQ(std::string(arena_.data(), arena_.data() + kBytes), there);
  EXPECT_EQ(copies_.totals().bytes_from_buffers, 1001u);
  EXPECT_EQ(copies_.totals().bytes_to_buffers, 777u);
}

TEST_F(StagedCopiesTest, FailsWhereAFileWasCutWithinItsLastPage) {
  const TestArena unsealed(kBytes, TestArena::Unsealed());
  const auto memory = Map(unsealed);
  for (const bool to_buffer : {false, true}) {
    StagedCopy copy = Copy(to_buffer, 0, 0, kBytes);
    copy.ranges.front().memory = memory;
    ASSERT_EQ(::ftruncate(unsealed.Fd().get(), kBytes - 1), 0);
    outcomes_.clear();
    copies_.Start(std::move(copy));
    Drive(1);
    ASSERT_EQ(outcomes_.size(), 1u);
    ASSERT_FALSE(outcomes_[0]);
    EXPECT_EQ(outcomes_[0].error().code, ErrorCode::kFdTooShort);
  }
}

TEST_F(StagedCopiesTest, AfterItsEndNothingIsBegun) {
  const std::string memory(arena_.data(), arena_.data() + kBytes);
  StagedCopy late = Copy(true, 0, 0, kBytes);
  late.end = Clock::now() - milliseconds(1);
  copies_.Start(std::move(late));
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  ASSERT_FALSE(outcomes_[0]);
  EXPECT_EQ(outcomes_[0].error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(arena_.data(), arena_.data() + kBytes), memory);
  EXPECT_TRUE(pool_.posted().empty());
}

TEST_F(StagedCopiesTest, WhatRunsAtItsEndIsEndedByForce) {
  pool_.Hold();
  StagedCopy copy = Copy(true, 0, 0, kBytes);
  copy.end = Clock::now() + milliseconds(600);
  copies_.Start(std::move(copy));
  Drive(1, milliseconds(400));
  EXPECT_TRUE(outcomes_.empty());
  EXPECT_EQ(pool_.replacements(), 0);
  EXPECT_GT(calls_at_, 0);  // somebody wakes the driver for it
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_FALSE(outcomes_[0]);
  EXPECT_EQ(pool_.replacements(), 1);
  pool_.Release();
}

// It would not end in time, and its worker would be ended for it.
TEST_F(StagedCopiesTest, ShortlyBeforeItsEndNothingIsBegun) {
  pool_.Hold();
  StagedCopy late = Copy(true, 0, 0, kBytes);
  late.end = Clock::now() + milliseconds(90);
  copies_.Start(std::move(late));
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  ASSERT_FALSE(outcomes_[0]);
  EXPECT_EQ(outcomes_[0].error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_TRUE(pool_.posted().empty());
  EXPECT_EQ(pool_.replacements(), 0);
  pool_.Release();
}

// Whoever polls first: the transport has it in its queue.
TEST_F(StagedCopiesTest, WhatALostWorkerLeavesIsNotBegunAgainAfterItsEnd) {
  const std::string memory(arena_.data(), arena_.data() + kBytes);
  pool_.Hold();
  StagedCopy copy = Copy(true, 0, 0, kBytes);
  const TimePoint end = Clock::now() + milliseconds(1'000);
  copy.end = end;
  copies_.Start(std::move(copy));
  while (pool_.in_flight() == 0 && Clock::now() < end) DriveOnce();
  const size_t posted = pool_.posted().size();
  ASSERT_GT(posted, 0u);
  std::this_thread::sleep_until(end);
  pool_.LoseWorker(pool_.posted().front().worker);
  pool_.Release();
  std::vector<uint64_t> ready_tokens;
  for (int i = 0; i < 5; ++i) scheduler_.Poll(&ready_tokens);
  Drive(1);
  EXPECT_EQ(pool_.posted().size(), posted);
  ASSERT_EQ(outcomes_.size(), 1u);
  ASSERT_FALSE(outcomes_[0]);
  EXPECT_EQ(outcomes_[0].error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(std::string(arena_.data(), arena_.data() + kBytes), memory);
}

TEST_F(StagedCopiesTest, WithoutAnEndItWaits) {
  pool_.Hold();
  copies_.Start(Copy(true, 0, 0, kBytes));
  Drive(1, milliseconds(100));
  EXPECT_TRUE(outcomes_.empty());
  pool_.Release();
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]);
}

// Local transfers that go before it leave no worker a moment: it gets its turn all the same.
TEST_F(StagedCopiesTest, GoesOnBesideTransfersOfAHigherPriorityThatNeverEnd) {
  constexpr int kSegments = 32 * 1024;
  TestArena source(kBytes, 3);
  TestArena target(kBytes, 4);
  pool_.DelayCompletions(milliseconds(5));
  auto load = std::make_shared<MovePlan>();
  load->operation = wire::Operation::kWrite;
  load->local = {Map(source)};
  load->remote.push_back({Map(target)});
  MoveSegment segment;
  segment.length = kBytes;
  for (int i = 0; i < kSegments; ++i) load->segments.push_back(segment);
  load->bytes = kBytes * kSegments;
  auto running = scheduler_.Start(load, 5, 1);
  copies_.Start(Copy(true, 0, 0, kBytes));
  const TimePoint begun = Clock::now();
  while (outcomes_.empty() && !running->finished()) DriveOnce();
  EXPECT_FALSE(running->finished());
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]);
  EXPECT_GE(Clock::now() - begun, milliseconds(50)) << "it has its priority";
  running->Stop();
  std::vector<uint64_t> ready_tokens;
  while (!running->finished()) scheduler_.Poll(&ready_tokens);
}

TEST_F(StagedCopiesTest, AWorkerThatIsLostIsReplacedOnce) {
  pool_.Hold();
  copies_.Start(Copy(false, 0, 0, kBytes));
  while (pool_.in_flight() == 0) DriveOnce();
  pool_.LoseWorker(pool_.posted().front().worker);
  pool_.Release();
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]);
}

TEST_F(StagedCopiesTest, AnErrorOfTheCopyIsToldWithoutTheMemory) {
  pool_.FailAll(ErrorCode::kDeviceError);
  StagedCopy copy = Copy(false, 0, 0, kBytes);
  const std::weak_ptr<const memory::MappedAllocation> alive = memory_;
  memory_.reset();
  bool kept = true;
  copy.done = [&](const Status& status) {
    kept = !alive.expired();
    outcomes_.push_back(status);
  };
  copies_.Start(std::move(copy));
  Drive(1);
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_EQ(outcomes_[0].error().code, ErrorCode::kDeviceError);
  EXPECT_FALSE(kept);
}

TEST_F(StagedCopiesTest, AnOwnersCopiesAreEndedByForceAndNoOthers) {
  pool_.Hold();
  StagedCopy other = Copy(false, 0, 0, 512);
  other.owner = &pool_;
  copies_.Start(std::move(other));
  copies_.Abort(this);
  for (int i = 0; i < 20; ++i) DriveOnce();
  EXPECT_TRUE(outcomes_.empty());
  EXPECT_EQ(pool_.replacements(), 0);
  copies_.Abort(&pool_);
  Drive(1);
  EXPECT_EQ(pool_.replacements(), 1);
  pool_.Release();
}

TEST_F(StagedCopiesTest, ClosedItRefusesAndWaitsForWhatRuns) {
  pool_.DelayCompletions(milliseconds(50));
  copies_.Start(Copy(false, 0, 0, kBytes));
  CloseDriven();
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_TRUE(outcomes_[0]);
  copies_.Start(Copy(false, 0, 0, kBytes));
  ASSERT_EQ(outcomes_.size(), 2u);
  EXPECT_EQ(outcomes_[1].error().code, ErrorCode::kShuttingDown);
}

TEST_F(StagedCopiesTest, ClosedItEndsByForceWhatDoesNotEnd) {
  pool_.Hold();
  copies_.Start(Copy(false, 0, 0, kBytes));
  DriveOnce();
  const TimePoint begun = Clock::now();
  CloseDriven();
  EXPECT_LT(Clock::now() - begun, milliseconds(3'000));
  ASSERT_EQ(outcomes_.size(), 1u);
  EXPECT_FALSE(outcomes_[0]);
  pool_.Release();
}

}  // namespace
}  // namespace gantry::transport
