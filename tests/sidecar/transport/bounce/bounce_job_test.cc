// What a transfer over bounce does where a step of it fails, hangs or is refused.
#include "sidecar/transport/bounce/bounce_job.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/sidecar/transport/bounce/bounce_world.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestArena;

constexpr uint64_t kBytes = 3'000'001;
constexpr milliseconds kLease{700};

RdmaOptions ShortLease() {
  RdmaOptions options;
  options.lease = kLease;
  return options;
}

class BounceJobTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(world_.slices_in_use(), 0u);
    world_.exchange_->cut = false;
    world_.target_.End("session");
    EXPECT_EQ(world_.half_there_.slices.in_use(), 0u);
  }
  std::unique_ptr<Operation> Start(wire::Operation direction) {
    return world_.bounce_->Start(PlanOf(direction, here_, there_, 0, 0, kBytes), 0, ++token_);
  }
  template <typename Condition>
  bool PollUntil(const Condition& condition, milliseconds time = milliseconds(10'000)) {
    const TimePoint limit = Clock::now() + time;
    while (!condition() && Clock::now() < limit) {
      if (!world_.Poll(&ready_tokens_).progressed) world_.world().waker_.Wait(milliseconds(2));
    }
    return condition();
  }
  bool Finish(const Operation& operation) {
    return PollUntil([&] { return operation.finished(); });
  }
  bool AreEqual() const { return std::memcmp(local_.data(), remote_.data(), kBytes) == 0; }

  BounceWorld world_{ShortLease()};
  TestArena local_{kBytes, 1};
  TestArena remote_{kBytes, 2};
  std::shared_ptr<const memory::MappedAllocation> here_ = world_.OnGpuHere(local_);
  RemoteAllocation there_ = world_.OnGpuThere(remote_);
  std::vector<uint64_t> ready_tokens_;
  uint64_t token_ = 0;
};

TEST_F(BounceJobTest, AWriteIsToldWhenItIsOnThePeersGpu) {
  world_.copier_there_.Hold(true);
  const auto operation = Start(wire::Operation::kWrite);
  ASSERT_TRUE(PollUntil([&] { return world_.copier_there_.waiting() > 0; }));
  EXPECT_FALSE(PollUntil([&] { return operation->finished() || operation->progress().bytes > 0; },
                         milliseconds(100)));
  world_.copier_there_.Hold(false);
  ASSERT_TRUE(Finish(*operation));
  EXPECT_FALSE(operation->error());
  EXPECT_TRUE(AreEqual());
  EXPECT_EQ(operation->progress().staged_bytes, kBytes);
}

TEST_F(BounceJobTest, AReadIsToldWhenItIsOnTheGpuHere) {
  world_.copier_here_.Hold(true);
  const auto operation = Start(wire::Operation::kRead);
  ASSERT_TRUE(PollUntil([&] { return world_.copier_here_.waiting() > 0; }));
  EXPECT_EQ(operation->progress().bytes, 0u);
  world_.copier_here_.Hold(false);
  ASSERT_TRUE(Finish(*operation));
  EXPECT_FALSE(operation->error());
  EXPECT_TRUE(AreEqual());
}

TEST_F(BounceJobTest, ACopyThatFailsHereOrThereFailsTheTransfer) {
  for (ArenaCopier* const copier : {&world_.copier_here_, &world_.copier_there_}) {
    for (const auto direction : {wire::Operation::kRead, wire::Operation::kWrite}) {
      const auto first = Start(direction);  // the stage is lent by then
      ASSERT_TRUE(Finish(*first));
      ASSERT_FALSE(first->error());
      copier->FailWith(Fail(ErrorCode::kWorkerLost, "the worker died"));
      const auto operation = Start(direction);
      ASSERT_TRUE(Finish(*operation));
      ASSERT_TRUE(operation->error());
      EXPECT_EQ(operation->error()->code, ErrorCode::kWorkerLost);
      EXPECT_NE(operation->error()->message.find("the worker died"), std::string::npos);
      EXPECT_FALSE(operation->UnfinishedItems().empty());
      copier->FailWith({});
    }
  }
}

TEST_F(BounceJobTest, ABufferThatWasTakenBackIsStale) {
  world_.owners_.Change(BounceRemoteBuffer::Of(there_)->id(),
                        [](auto* entry) { ++entry->generation; });
  const auto operation = Start(wire::Operation::kRead);
  ASSERT_TRUE(Finish(*operation));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kStaleGeneration);
}

// Nobody knows what the peer still copies.
TEST_F(BounceJobTest, AWriteWhosePeerIsLostIsQuietAfterTheLeaseAndTheTimeOfACopy) {
  const auto first = Start(wire::Operation::kWrite);
  ASSERT_TRUE(Finish(*first));
  world_.exchange_->cut = true;
  const auto operation = Start(wire::Operation::kWrite);
  ASSERT_TRUE(PollUntil([&] { return operation->error().has_value(); }));
  EXPECT_EQ(operation->error()->code, ErrorCode::kPeerLost);
  const TimePoint failed = Clock::now();
  ASSERT_TRUE(Finish(*operation));
  EXPECT_GE(Clock::now() - failed, kLease + milliseconds(2'000));
  EXPECT_LT(Clock::now() - failed, kLease + milliseconds(4'000));
  world_.exchange_->cut = false;
}

TEST_F(BounceJobTest, APeerThatLendsNothingIsAReasonAgainstThePathForAWhile) {
  EXPECT_TRUE(world_.bounce_->CanReach(*here_, there_));
  world_.exchange_->slices_max = 0;
  const auto operation = Start(wire::Operation::kRead);
  ASSERT_TRUE(Finish(*operation));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPathUnavailable);
  EXPECT_FALSE(operation->UnfinishedItems().empty());
  const Status reaches = world_.bounce_->CanReach(*here_, there_);
  ASSERT_FALSE(reaches);
  EXPECT_NE(reaches.error().message.find("no slice of the staging"), std::string::npos);
  world_.exchange_->slices_max = UINT32_MAX;
  EXPECT_TRUE(PollUntil([&] { return world_.bounce_->CanReach(*here_, there_).has_value(); },
                        milliseconds(2'000)));
  const auto again = Start(wire::Operation::kRead);
  ASSERT_TRUE(Finish(*again));
  EXPECT_FALSE(again->error());
}

// The end of a session says nothing of what the next one is lent.
TEST_F(BounceJobTest, APeerThatDoesNotAnswerIsNoReasonAgainstThePath) {
  world_.exchange_->cut = true;
  for (const ErrorCode code :
       {ErrorCode::kPeerUnavailable, ErrorCode::kDeadlineExceeded, ErrorCode::kCancelled}) {
    world_.exchange_->cut_as = code;
    const auto operation = Start(wire::Operation::kRead);
    ASSERT_TRUE(Finish(*operation));
    ASSERT_TRUE(operation->error());
    EXPECT_EQ(operation->error()->code, ErrorCode::kPeerUnavailable) << InfoOf(code).name;
    EXPECT_TRUE(world_.bounce_->CanReach(*here_, there_));
  }
}

// An answer was lost: what the session has there is closed, and another one is lent.
TEST_F(BounceJobTest, AStageThatNobodyKnowsOfIsClosed) {
  ASSERT_TRUE(world_.target_.Open("session", 2));
  const auto operation = Start(wire::Operation::kWrite);
  ASSERT_TRUE(Finish(*operation));
  EXPECT_FALSE(operation->error());
  EXPECT_TRUE(AreEqual());
}

TEST_F(BounceJobTest, AStageThatNobodyUsesIsGivenBackAndLentAnew) {
  for (int i = 1; i <= 2; ++i) {
    const auto operation = Start(wire::Operation::kWrite);
    ASSERT_TRUE(Finish(*operation));
    EXPECT_GT(world_.half_there_.slices.in_use(), 0u);
    EXPECT_EQ(world_.exchange_->opens, i);
    const auto soon = Start(wire::Operation::kWrite);  // the same one
    ASSERT_TRUE(Finish(*soon));
    EXPECT_EQ(world_.exchange_->opens, i);
    EXPECT_TRUE(PollUntil([&] { return world_.half_there_.slices.in_use() == 0; }));
    EXPECT_TRUE(AreEqual());
  }
}

TEST_F(BounceJobTest, StoppedWhileItsPeerIsAskedItIsQuietAtOnce) {
  world_.exchange_->cut = true;
  const auto operation = Start(wire::Operation::kRead);
  operation->Stop();
  world_.Poll(&ready_tokens_);
  EXPECT_TRUE(operation->finished());
  EXPECT_FALSE(operation->error());
  EXPECT_FALSE(operation->UnfinishedItems().empty());
  EXPECT_TRUE(PollUntil([&] { return world_.exchange_->opens == 1; }));
}

// Slices that others have are waited for, and not longer than until it is stopped.
TEST_F(BounceJobTest, WaitsForSlicesAndNoLongerThanItHasTo) {
  auto all = world_.half_here_.slices.Take(BounceWorld::kSlices, nullptr);
  ASSERT_TRUE(all);
  const auto stopped = Start(wire::Operation::kWrite);
  const auto waiting = Start(wire::Operation::kWrite);
  EXPECT_FALSE(PollUntil([&] { return world_.copier_here_.copies() > 0; }, milliseconds(100)));
  stopped->Stop();
  EXPECT_TRUE(stopped->finished());
  EXPECT_FALSE(waiting->finished());
  all->Release();
  ASSERT_TRUE(Finish(*waiting));
  EXPECT_FALSE(waiting->error());
  EXPECT_TRUE(AreEqual());
}

TEST_F(BounceJobTest, SaysWhyItIsNotToBeHad) {
  const std::optional<Error> none;
  const std::optional<Error> no_dma_buf =
      Error(ErrorCode::kPathUnavailable, "the device takes no dma-buf");
  const std::vector<std::shared_ptr<const memory::NicMemory>> nic_memory;
  const std::vector<std::shared_ptr<const memory::MappedAllocation>> gpu = {here_};
  const TestArena memory(4096);
  const std::vector<std::shared_ptr<const memory::MappedAllocation>> host = {
      world_.world().Allocate(memory, false)};
  const RemoteAllocation direct = world_.OnNicsThere(memory);
  const auto says = [](const Status& status, const std::string& what) {
    return !status && status.error().message.find(what) != std::string::npos;
  };
  EXPECT_TRUE(world_.bounce_->CanCarry({gpu, nic_memory, no_dma_buf}, {there_}));
  EXPECT_TRUE(world_.bounce_->CanCarry({gpu, nic_memory, no_dma_buf}, {direct}));
  EXPECT_TRUE(world_.bounce_->CanCarry({host, nic_memory, none}, {there_}));
  EXPECT_TRUE(says(world_.bounce_->CanCarry({host, nic_memory, none}, {direct}),
                   "nothing has to be staged"));
  EXPECT_TRUE(says(world_.bounce_->CanCarry({host, nic_memory, no_dma_buf}, {there_}),
                   "do not have the local buffer: the device takes no dma-buf"));
  world_.copier_here_.FailWith(Fail(ErrorCode::kWorkerLost, "no worker has a GPU"));
  EXPECT_TRUE(says(world_.bounce_->CanCarry({gpu, nic_memory, no_dma_buf}, {there_}),
                   "the local buffer is GPU memory: no worker has a GPU"));
  world_.copier_here_.FailWith({});
  EXPECT_TRUE(says(world_.bounce_->CanReach(*here_, {}), "on no RDMA device that leads here"));
}

// Of one allocation that two buffers are views of devices have the one alone.
TEST(BounceRanges, WhatDevicesHaveOfAnAllocationIsNotStagedAndTheRestIs) {
  constexpr uint64_t kOnNics = 1'000'001;
  BounceWorld world({}, {{.name = "fake0", .dmabuf = true}});
  const TestArena local(kBytes, 1), remote(kBytes, 2);
  const auto here = world.OnGpuHere(local);
  const auto registered = world.world().registrar_.Register({{here, 0, kOnNics}}, {});
  ASSERT_TRUE(registered) << registered.error().message;
  for (const auto direction : {wire::Operation::kWrite, wire::Operation::kRead}) {
    auto plan = PlanOf(direction, here, world.OnGpuThere(remote), 0, 0, kOnNics);
    MoveSegment rest;
    rest.local_offset = rest.remote_offset = kOnNics;
    rest.length = kBytes - kOnNics;
    plan->segments.push_back(rest);
    plan->bytes = kBytes;
    plan->local_nic_memory = {*registered};
    std::memset(direction == wire::Operation::kWrite ? remote.data() : local.data(), 0, kBytes);
    const auto operation = world.bounce_->Start(plan, 0, 1);
    std::vector<uint64_t> ready_tokens;
    const TimePoint limit = Clock::now() + milliseconds(10'000);
    while (!operation->finished() && Clock::now() < limit) {
      if (!world.Poll(&ready_tokens).progressed) world.world().waker_.Wait(milliseconds(2));
    }
    ASSERT_TRUE(operation->finished());
    ASSERT_FALSE(operation->error()) << operation->error()->message;
    EXPECT_EQ(operation->progress().staged_bytes, kBytes - kOnNics);
    EXPECT_EQ(std::memcmp(local.data(), remote.data(), kBytes), 0);
  }
  world.target_.End("session");
}

}  // namespace
}  // namespace gantry::transport
