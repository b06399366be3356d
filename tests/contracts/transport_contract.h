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
  virtual std::vector<std::shared_ptr<const memory::NicMemory>> LocalNicMemory() const {
    return {};
  }
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
    plan->local_nic_memory = harness_->LocalNicMemory();
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
      if (!harness_->transport().Poll(&finished).progressed) harness_->Wait();
    }
    harness_->transport().Poll(&finished);
    ASSERT_TRUE(operation.finished());
    EXPECT_FALSE(harness_->transport().Poll(&finished).should_spin) << "nothing is in flight";
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

}  // namespace gantry::testing
