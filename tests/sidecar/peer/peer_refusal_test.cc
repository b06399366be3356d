// A peer over RDMA that acknowledges nothing, and whose device goes on: what it still does to a
// buffer that was taken back is refused by the owner's device, and all else of it is untouched.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <vector>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/peer/raw_initiator.h"
#include "tests/sidecar/peer/test_sidecar.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::testing {
namespace {

using transport::MemoryRegionSet;
using transport::Operation;

class PeerRefusalTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 64 * 4096;

  PeerRefusalTest() {
    owner_.UseTcp({});
    owner_.registry().SetNicRegistrar(&world_.registrar_there_);
    owner_.StartServer();
    kv_ = owner_.Register(kv_memory_, "kv");
    other_ = owner_.Register(other_memory_, "other");
    local_ = world_.Local(local_memory_);
  }
  ~PeerRefusalTest() override {
    owner_.StopServer();
    kv_.reset();
    other_.reset();
    EXPECT_TRUE(owner_.registry().RemoveAll("engine", 0, In(2'000)));
  }

  static transport::RdmaOptions SmallSlices() {
    transport::RdmaOptions options;
    options.slice_bytes = 4096;
    options.work_requests = 4;
    options.queue_pairs = 1;
    return options;
  }
  // The silent peer's, of all of the buffer.
  std::unique_ptr<Operation> Write(registry::Buffer& buffer) {
    const auto used = buffer.Acquire();
    EXPECT_TRUE(used && used->nic_registration());
    const auto& set = dynamic_cast<const MemoryRegionSet&>(**used->nic_registration());
    return world_.transport_.Start(
        world_.WithNics(transport::PlanOf(wire::Operation::kWrite, local_,
                                          world_.Remote(set.ChunkDescriptors()), 0, 0, kBytes)),
        0, ++token_);
  }
  // Both are written to, and half of what is in flight has arrived.
  void BeginWrites() {
    world_.MoveSomething();
    fabric_.SetProgress(FakeFabric::Progress::kByStep);
    to_kv_ = Write(*kv_);
    to_other_ = Write(*other_);
    std::vector<uint64_t> ready_tokens;
    const TimePoint limit = In(10'000);
    while (steps_ < 16 && Clock::now() < limit) {
      world_.transport_.Poll(&ready_tokens);
      if (fabric_.Step()) ++steps_;
    }
    world_.transport_.Poll(&ready_tokens);
    ASSERT_GT(fabric_.pending(), 0u);
  }
  static std::vector<uint8_t> Bytes(const TestArena& arena) {
    return {arena.data(), arena.data() + arena.size()};
  }
  Status Remove(int time_ms, std::vector<registry::PeerRelease>* peers) {
    return owner_.registry().Remove(kv_->description().id, In(time_ms), peers);
  }

  FakeFabric fabric_;
  FakeVerbs here_{fabric_, {{"here0"}}};
  FakeVerbs there_{fabric_, {{"there0"}}};
  const TestArena local_memory_{kBytes, 1};
  const TestArena kv_memory_{kBytes, 2};
  const TestArena other_memory_{kBytes, 3};
  transport::RdmaWorld world_{here_, there_, SmallSlices(), SmallSlices()};
  CountingMapper mapper_;
  TestSidecar owner_{"", "prefill", mapper_};
  std::shared_ptr<registry::Buffer> kv_;
  std::shared_ptr<registry::Buffer> other_;
  std::shared_ptr<const memory::MappedAllocation> local_;
  std::unique_ptr<Operation> to_kv_;
  std::unique_ptr<Operation> to_other_;
  int steps_ = 0;
  uint64_t token_ = 0;
};

TEST_F(PeerRefusalTest, ItsOtherTransfersSucceedAndNoByteOfTheBufferMovesAnyMore) {
  RawInitiator silent(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("kv") && silent.Describe("other"));
  BeginWrites();
  std::vector<registry::PeerRelease> peers;
  const Status removed = Remove(800, &peers);
  ASSERT_TRUE(removed) << removed.error().message;
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].outcome, registry::PeerOutcome::kRefused);
  EXPECT_TRUE(owner_.HasEvent(engine::EventType::kBufferRevoked, "kv"));
  const std::vector<uint8_t> kv = Bytes(kv_memory_);
  EXPECT_FALSE(kv == Bytes(local_memory_)) << "the write was to be caught in its middle";

  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ASSERT_TRUE(world_.Finish(*to_kv_));
  ASSERT_TRUE(world_.Finish(*to_other_));
  ASSERT_TRUE(to_kv_->error());
  EXPECT_EQ(to_kv_->error()->code, ErrorCode::kStaleGeneration) << to_kv_->error()->message;
  EXPECT_TRUE(kv == Bytes(kv_memory_));
  EXPECT_FALSE(to_other_->error()) << to_other_->error()->message;
  EXPECT_TRUE(Bytes(other_memory_) == Bytes(local_memory_));
  EXPECT_EQ(world_.errors_.size(), 1u) << "that of the buffer";

  const auto told = silent.Next();
  ASSERT_TRUE(told && told->has_revoked());
  EXPECT_TRUE(silent.Describe("other")) << "its session is what it was";
}

TEST_F(PeerRefusalTest, ItIsRefusedOnlyOnceTheDevicesHaveLetGoOfIt) {
  RawInitiator silent(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("kv"));
  there_.Hold("there0", FakeCall::kDeregister, true);
  std::vector<registry::PeerRelease> peers;
  std::future<Status> removed =
      std::async(std::launch::async, [&] { return Remove(10'000, &peers); });
  EXPECT_TRUE(Eventually(10'000, [&] { return there_.waiting("there0") == 1; }));
  // Who refuses first and deregisters after has said so by now.
  EXPECT_FALSE(owner_.HasEvent(engine::EventType::kBufferRevoked, "kv"));
  EXPECT_EQ(there_.live().regions, 2);
  there_.Hold("there0", FakeCall::kDeregister, false);
  const Status done = removed.get();
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].outcome, registry::PeerOutcome::kRefused);
  EXPECT_TRUE(owner_.HasEvent(engine::EventType::kBufferRevoked, "kv"));
  EXPECT_EQ(there_.live().regions, 1);
}

TEST_F(PeerRefusalTest, WhileTheBufferIsUsedHereItsSessionEndsInstead) {
  RawInitiator silent(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("kv") && silent.Describe("other"));
  std::vector<registry::PeerRelease> peers;
  {
    const auto use = kv_->Acquire("a transfer of the owner's");
    ASSERT_TRUE(use);
    const Status removed = Remove(800, &peers);
    ASSERT_FALSE(removed);
    EXPECT_EQ(removed.error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_TRUE((*use).nic_registration()) << "its devices have it as long as it is used";
    EXPECT_EQ(there_.live().regions, 2);
  }
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].outcome, registry::PeerOutcome::kCutOff);
  EXPECT_EQ(silent.Describe("other").error().code, ErrorCode::kStaleGeneration);
  EXPECT_TRUE(Remove(2'000, nullptr));
}

TEST_F(PeerRefusalTest, WhatADeviceDoesNotLetGoOfCostsTheSessionAndIsTold) {
  RawInitiator silent(owner_.server().tcp_address(), "decode");
  ASSERT_TRUE(silent.Watch(owner_.generation()));
  ASSERT_TRUE(silent.Describe("kv"));
  there_.FailCall("there0", FakeCall::kDeregister, 1, EBUSY);
  std::vector<registry::PeerRelease> peers;
  const Status removed = Remove(800, &peers);
  ASSERT_FALSE(removed);
  EXPECT_EQ(removed.error().code, ErrorCode::kDeviceError) << removed.error().message;
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].outcome, registry::PeerOutcome::kCutOff);
}

}  // namespace
}  // namespace gantry::testing
