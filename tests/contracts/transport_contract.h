// What every transport does, whatever moves its bytes. A transport joins by a Harness that makes
// it and its two sides' memory, and one INSTANTIATE line. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "sidecar/transport/transport.h"
#include "tests/fakes/test_arena.h"

namespace gantry::testing {

class TransportHarness {
 public:
  virtual ~TransportHarness() = default;
  virtual transport::Transport& transport() = 0;
  // The arena as the executing side uses its own, and as it sees the other side's.
  virtual std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) = 0;
  virtual transport::RemoteAllocation Remote(const TestArena& arena) = 0;
  // What RDMA devices have of the former, where they are needed.
  virtual std::vector<std::shared_ptr<const memory::NicMemory>> OnNics() const { return {}; }
  // The arena becomes what the transport's memory holds, where that is elsewhere.
  virtual void Refresh(TestArena& /*arena*/) {}
  // Whether each segment of a plan is one chunk; else chunks are what is left after merging and
  // cutting.
  virtual bool ChunksAreSegments() const { return true; }
  // Sleeps until Poll may have something to do.
  virtual void Wait() = 0;
  // Whatever carries the bytes dies once, in the middle of its work, and comes back.
  virtual void KillCarrier() = 0;
  // It hangs: nothing that is issued from now on, or is in flight, comes to an end by itself.
  virtual void HangCarrier() = 0;
};

using MakeTransportHarness = std::function<std::unique_ptr<TransportHarness>()>;

class TransportContract : public ::testing::TestWithParam<MakeTransportHarness> {
 protected:
  static constexpr uint64_t kArena = 4 << 20;

  void SetUp() override { harness_ = GetParam()(); }

  std::shared_ptr<transport::MovePlan> NewPlan(wire::Operation operation) {
    auto plan = std::make_shared<transport::MovePlan>();
    plan->operation = operation;
    plan->local = {harness_->Local(local_)};
    plan->local_on_nics = harness_->OnNics();
    plan->remote = {harness_->Remote(remote_)};
    return plan;
  }
  static void Add(transport::MovePlan* plan, uint64_t local, uint64_t remote, uint64_t length,
                  uint32_t count = 1, uint64_t local_stride = 0, uint64_t remote_stride = 0) {
    transport::MoveSegment segment;
    segment.local_offset = local;
    segment.remote_offset = remote;
    segment.length = length;
    segment.count = count;
    segment.local_stride = local_stride;
    segment.remote_stride = remote_stride;
    segment.first_item = static_cast<uint32_t>(plan->segments.size());
    plan->segments.push_back(segment);
    plan->bytes += segment.bytes();
  }
  // 64 KiB pieces in random order on both sides.
  std::shared_ptr<transport::MovePlan> RandomPlan(wire::Operation operation) {
    constexpr uint64_t kPiece = 64 * 1024;
    auto plan = NewPlan(operation);
    std::vector<uint64_t> here(kArena / kPiece);
    for (size_t i = 0; i < here.size(); ++i) here[i] = i * kPiece;
    std::vector<uint64_t> there = here;
    std::mt19937 random(5);
    std::shuffle(here.begin(), here.end(), random);
    std::shuffle(there.begin(), there.end(), random);
    for (size_t i = 0; i < here.size(); ++i) Add(plan.get(), here[i], there[i], kPiece);
    return plan;
  }

  // Polls until the operation is finished; its token must come exactly once.
  void Finish(transport::Operation& operation, uint64_t token) {
    const TimePoint limit = Clock::now() + std::chrono::seconds(20);
    std::vector<uint64_t> finished;
    while (!operation.finished() && Clock::now() < limit) {
      if (!harness_->transport().Poll(&finished)) harness_->Wait();
    }
    harness_->transport().Poll(&finished);
    ASSERT_TRUE(operation.finished());
    EXPECT_EQ(std::count(finished.begin(), finished.end(), token), 1);
  }
  // Applies the plan to plain copies and compares both arenas whole: neighbours included.
  void ExpectMoved(const transport::MovePlan& plan, std::vector<uint8_t> local,
                   std::vector<uint8_t> remote) {
    const bool read = plan.operation == wire::Operation::kRead;
    for (const transport::MoveSegment& segment : plan.segments) {
      for (uint32_t i = 0; i < segment.count; ++i) {
        uint8_t* here = local.data() + segment.local_offset + i * segment.local_stride;
        uint8_t* there = remote.data() + segment.remote_offset + i * segment.remote_stride;
        std::memcpy(read ? here : there, read ? there : here, segment.length);
      }
    }
    harness_->Refresh(local_);
    harness_->Refresh(remote_);
    EXPECT_EQ(std::memcmp(local.data(), local_.data(), kArena), 0);
    EXPECT_EQ(std::memcmp(remote.data(), remote_.data(), kArena), 0);
  }
  void RunAndCompare(const std::shared_ptr<transport::MovePlan>& plan) {
    const std::vector<uint8_t> local(local_.data(), local_.data() + kArena);
    const std::vector<uint8_t> remote(remote_.data(), remote_.data() + kArena);
    auto operation = harness_->transport().Start(plan, 0, 7);
    Finish(*operation, 7);
    EXPECT_FALSE(operation->error()) << operation->error()->message;
    EXPECT_EQ(operation->progress().bytes, plan->bytes);
    if (harness_->ChunksAreSegments()) {
      EXPECT_EQ(operation->progress().chunks_total, plan->segments.size());
    }
    EXPECT_EQ(operation->progress().chunks, operation->progress().chunks_total);
    EXPECT_TRUE(operation->UnfinishedItems().empty());
    ExpectMoved(*plan, local, remote);
  }

  TestArena local_{kArena, 1};
  TestArena remote_{kArena, 2};
  std::unique_ptr<TransportHarness> harness_;
};

TEST_P(TransportContract, OffsetViewsMoveAndNeighboursStay) {
  for (const auto operation : {wire::Operation::kRead, wire::Operation::kWrite}) {
    auto plan = NewPlan(operation);
    Add(plan.get(), 4097, 12'345, 1);
    Add(plan.get(), 8192, 65'536, 4096);
    Add(plan.get(), 100'001, 200'003, 77'777);
    Add(plan.get(), kArena - 1, kArena - 1, 1);
    RunAndCompare(plan);
  }
}

TEST_P(TransportContract, StridedBlocksMove) {
  auto plan = NewPlan(wire::Operation::kRead);
  Add(plan.get(), 512, 1024, 300, 50, 1000, 700);
  Add(plan.get(), 1'000'000, 2'000'000, 4096, 16, 8192, 4096);
  RunAndCompare(plan);
}

TEST_P(TransportContract, ManyRandomBlocksMove) {
  RunAndCompare(RandomPlan(wire::Operation::kRead));
  RunAndCompare(RandomPlan(wire::Operation::kWrite));
}

TEST_P(TransportContract, OperationsSideBySide) {
  const std::vector<uint8_t> local(local_.data(), local_.data() + kArena);
  const std::vector<uint8_t> remote(remote_.data(), remote_.data() + kArena);
  auto all = NewPlan(wire::Operation::kRead);
  std::vector<std::unique_ptr<transport::Operation>> operations;
  for (uint64_t i = 0; i < 16; ++i) {
    auto plan = NewPlan(wire::Operation::kRead);
    for (uint64_t j = 0; j < 20; ++j) {
      const uint64_t at = (i * 20 + j) * 10'000;
      Add(plan.get(), at, at, 10'000);
      Add(all.get(), at, at, 10'000);
    }
    operations.push_back(harness_->transport().Start(plan, static_cast<int>(i % 3), 100 + i));
  }
  std::vector<uint64_t> finished;
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  while (finished.size() < 16 && Clock::now() < limit) {
    if (!harness_->transport().Poll(&finished)) harness_->Wait();
  }
  std::sort(finished.begin(), finished.end());
  ASSERT_EQ(finished.size(), 16u);
  for (uint64_t i = 0; i < 16; ++i) EXPECT_EQ(finished[i], 100 + i);
  ExpectMoved(*all, local, remote);
}

TEST_P(TransportContract, StoppedMeansQuiet) {
  auto plan = RandomPlan(wire::Operation::kRead);
  auto operation = harness_->transport().Start(plan, 0, 9);
  std::vector<uint64_t> finished;
  harness_->transport().Poll(&finished);
  operation->Stop();
  while (!operation->finished()) {
    if (!harness_->transport().Poll(&finished)) harness_->Wait();
  }
  harness_->Refresh(local_);
  const std::vector<uint8_t> quiet(local_.data(), local_.data() + kArena);
  const auto missing = operation->UnfinishedItems();
  EXPECT_EQ(operation->progress().bytes + missing.size() * (plan->bytes / plan->segments.size()),
            plan->bytes);
  if (harness_->ChunksAreSegments()) {
    EXPECT_EQ(operation->progress().chunks + missing.size(), plan->segments.size());
  }
  std::vector<uint64_t> later;
  for (int i = 0; i < 20; ++i) {
    harness_->transport().Poll(&later);
    ::usleep(1000);
  }
  harness_->Refresh(local_);
  EXPECT_EQ(std::memcmp(quiet.data(), local_.data(), kArena), 0) << "bytes moved after the end";
}

TEST_P(TransportContract, DeathOfTheCarrierIsSurvivedOrReported) {
  for (int round = 0; round < 5; ++round) {
    const std::vector<uint8_t> local(local_.data(), local_.data() + kArena);
    const std::vector<uint8_t> remote(remote_.data(), remote_.data() + kArena);
    auto plan = RandomPlan(wire::Operation::kRead);
    auto operation = harness_->transport().Start(plan, 0, 11);
    std::vector<uint64_t> finished;
    harness_->transport().Poll(&finished);
    harness_->KillCarrier();
    while (!operation->finished()) {
      if (!harness_->transport().Poll(&finished)) harness_->Wait();
    }
    if (!operation->error()) {
      ExpectMoved(*plan, local, remote);
    } else {
      EXPECT_FALSE(operation->UnfinishedItems().empty());
      harness_->Refresh(local_);  // some of it has moved
    }
  }
}

TEST_P(TransportContract, AbortEndsWhatHangs) {
  auto plan = RandomPlan(wire::Operation::kRead);  // maps, which also needs the carrier
  harness_->HangCarrier();
  auto operation = harness_->transport().Start(plan, 0, 13);
  std::vector<uint64_t> finished;
  const TimePoint issued_by = Clock::now() + std::chrono::seconds(10);
  do {  // until something is issued that can hang
    if (!harness_->transport().Poll(&finished)) harness_->Wait();
  } while (!operation->progress().first_posted && Clock::now() < issued_by);
  operation->Stop();
  for (int i = 0; i < 10; ++i) {
    harness_->transport().Poll(&finished);
    ::usleep(1000);
  }
  ASSERT_FALSE(operation->finished()) << "reported quiet while copies could still run";
  operation->Abort();
  const TimePoint limit = Clock::now() + std::chrono::seconds(10);
  while (!operation->finished() && Clock::now() < limit) {
    if (!harness_->transport().Poll(&finished)) harness_->Wait();
  }
  EXPECT_TRUE(operation->finished());
  EXPECT_FALSE(operation->UnfinishedItems().empty());
}

}  // namespace gantry::testing
