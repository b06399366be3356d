// The rdma transport's two sides over fake devices, for tests that break them: devices' calls,
// work and ports, and the peer API. Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {

class FakeRdmaFixture : public ::testing::Test {
 protected:
  using FakeVerbs = gantry::testing::FakeVerbs;
  using FakeFabric = gantry::testing::FakeFabric;
  using FakeCall = gantry::testing::FakeCall;
  using FakeLive = gantry::testing::FakeLive;
  using TestArena = gantry::testing::TestArena;

  static constexpr uint64_t kArena = 256 * 1024;
  static constexpr uint64_t kSmallSlice = 4096;
  static constexpr uint32_t kFewRequests = 8;

  // Many work requests, of which few are in flight.
  static RdmaOptions SmallSlices() {
    RdmaOptions options;
    options.slice_bytes = kSmallSlice;
    options.work_requests = kFewRequests;
    return options;
  }
  // As many devices on both sides: "here0", "there0" and so on.
  void Make(int devices, const RdmaOptions& options = {}) {
    here_ = MakeHost("here", devices);
    there_ = MakeHost("there", devices);
    world_.emplace(*here_, *there_, options, options);
    local_buffer_ = world_->Local(local_);
    remote_ = world_->Remote(world_->Describe(there_memory_));
  }
  // Everything that is opened and made is taken back.
  void TearDown() override {
    if (!world_) return;
    remote_ = {};
    local_buffer_.reset();
    world_.reset();
    ExpectNothingLives();
  }
  void ExpectNothingLives() {
    EXPECT_TRUE(here_->live() == (FakeLive{0, 0, 0, 0}));
    EXPECT_TRUE(there_->live() == (FakeLive{0, 0, 0, 0}));
  }
  // Queue pairs of both sides together.
  int QueuePairs() const { return here_->live().queue_pairs + there_->live().queue_pairs; }

  std::unique_ptr<Operation> Start(wire::Operation direction, uint64_t here, uint64_t there,
                                   uint64_t length, int priority = 0) {
    return world_->transport_.Start(
        world_->WithNics(PlanOf(direction, local_buffer_, remote_, here, there, length)), priority,
        ++token_);
  }
  std::unique_ptr<Operation> WriteAll(int priority = 0) {
    return Start(wire::Operation::kWrite, 0, 0, kArena, priority);
  }
  std::unique_ptr<Operation> ReadAll() { return Start(wire::Operation::kRead, 0, 0, kArena); }
  void ExpectAllMoved(const Operation& operation) {
    ASSERT_TRUE(world_->Finish(operation));
    ASSERT_FALSE(operation.error()) << operation.error()->message;
    EXPECT_EQ(operation.progress().bytes, kArena);
    EXPECT_TRUE(operation.UnfinishedItems().empty());
    EXPECT_EQ(std::memcmp(local_.data(), there_memory_.data(), kArena), 0);
  }
  // Polls until then; false: it did not come.
  template <typename Condition>
  bool PollUntil(const Condition& condition, milliseconds time = milliseconds(10'000)) {
    const TimePoint limit = Clock::now() + time;
    std::vector<uint64_t> ready_tokens;
    while (!condition() && Clock::now() < limit) {
      if (!world_->transport_.Poll(&ready_tokens).progressed) world_->waker_.Wait(milliseconds(2));
    }
    return condition();
  }
  // Of a device here. It is known when this returns, before the path is driven again: fake devices
  // fail work at once, and so twice before a port's end is heard of.
  void SetPort(size_t device, bool up) {
    here_->SetPort("here" + std::to_string(device), up);
    const TimePoint limit = Clock::now() + milliseconds(10'000);
    while (world_->devices_->IsUp(device) != up && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_EQ(world_->devices_->IsUp(device), up);
  }
  void PollFor(milliseconds time) {
    (void)PollUntil([] { return false; }, time);
  }

  FakeFabric fabric_;
  std::unique_ptr<FakeVerbs> here_;
  std::unique_ptr<FakeVerbs> there_;
  const TestArena local_{kArena, 1};
  const TestArena there_memory_{kArena, 2};
  std::optional<RdmaWorld> world_;
  std::shared_ptr<const memory::MappedAllocation> local_buffer_;
  RemoteAllocation remote_;
  uint64_t token_ = 0;

 private:
  std::unique_ptr<FakeVerbs> MakeHost(const std::string& name, int devices) {
    std::vector<gantry::testing::FakeDeviceOptions> made;
    for (int i = 0; i < devices; ++i) made.push_back({.name = name + std::to_string(i)});
    return std::make_unique<FakeVerbs>(fabric_, std::move(made));
  }
};

}  // namespace gantry::transport
