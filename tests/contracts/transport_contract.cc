#include "tests/contracts/transport_contract.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace gantry::testing {

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
    if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
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
    if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
  }
  harness_->Refresh(local_);
  const std::vector<uint8_t> quiet(local_.data(), local_.data() + kArena);
  const auto missing = operation->UnfinishedItems();
  // A part of an item may have moved: its bytes count, and the item is missing all the same.
  const uint64_t item_bytes = plan->bytes / plan->segments.size();
  const uint64_t whole_bytes = plan->bytes - missing.size() * item_bytes;
  EXPECT_GE(operation->progress().bytes, whole_bytes);
  EXPECT_LE(operation->progress().bytes, whole_bytes + missing.size() * (item_bytes - 1));
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
      if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
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
    if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
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
    if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
  }
  EXPECT_TRUE(operation->finished());
  EXPECT_FALSE(operation->UnfinishedItems().empty());
}

}  // namespace gantry::testing
