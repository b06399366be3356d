// Devices and peers that do not answer: what is theirs stays in flight, and nobody else waits.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

class RdmaHungDevice : public FakeRdmaFixture {
 protected:
  void TearDown() override {
    Release();
    FakeRdmaFixture::TearDown();
  }
  void Release() {
    if (!here_) return;
    for (const FakeCall call : kCalls) here_->Hold("here0", call, false);
    world_->exchange_->Hold(false);
  }
  // With a connection of its own.
  RemoteAllocation AnotherPeer(const TestArena& memory) {
    others_.push_back(world_->transport_.AddPeer("other", world_->exchange_));
    return {nullptr, std::make_shared<RdmaRemoteBuffer>(others_.back(), world_->Describe(memory),
                                                        world_->on_there_)};
  }
  void ExpectMoves(const RemoteAllocation& remote, const TestArena& memory) {
    const auto operation = world_->transport_.Start(
        world_->WithNics(PlanOf(wire::Operation::kWrite, local_buffer_, remote, 0, 0, kArena)), 0,
        ++token_);
    ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
    ASSERT_FALSE(operation->error()) << operation->error()->message;
    EXPECT_EQ(std::memcmp(local_.data(), memory.data(), kArena), 0);
  }

  static constexpr FakeCall kCalls[] = {FakeCall::kFail, FakeCall::kDestroyQueuePair};
  std::vector<std::shared_ptr<RdmaPeer>> others_;
};

class RdmaHungCall : public RdmaHungDevice,
                     public ::testing::WithParamInterface<gantry::testing::FakeCall> {};

TEST_P(RdmaHungCall, HoldsItsOwnTransfersAndNobodyElse) {
  Make(1, SmallSlices());
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  const TestArena others_memory(kArena, 3);
  const RemoteAllocation other = AnotherPeer(others_memory);
  here_->Hold("here0", GetParam(), true);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto write = WriteAll();
  const auto read = ReadAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 8; }));
  write->Abort();
  ASSERT_TRUE(PollUntil([&] { return here_->waiting("here0") == 1; }));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectMoves(other, others_memory);  // while the driver would wait
  PollFor(milliseconds(700));         // longer than what is flushed is waited for
  EXPECT_FALSE(write->finished()) << "its queue pair may still send";
  EXPECT_FALSE(read->finished()) << "its memory may still be written to";
  EXPECT_TRUE(world_->peer_->holds_memory());
  world_->peer_->Close(Error(ErrorCode::kPeerLost, "the session is over"));
  std::atomic<bool> closed = false;
  std::jthread awaiting([&] {
    world_->peer_->AwaitClosed();
    closed = true;
  });
  PollFor(milliseconds(50));
  EXPECT_FALSE(closed);
  Release();
  EXPECT_TRUE(PollUntil([&] { return closed.load(); }));
  ASSERT_TRUE(world_->Finish(*write) && world_->Finish(*read));
  EXPECT_TRUE(read->error());
}

INSTANTIATE_TEST_SUITE_P(Each, RdmaHungCall,
                         ::testing::Values(gantry::testing::FakeCall::kFail,
                                           gantry::testing::FakeCall::kDestroyQueuePair));

// As many as there are helper threads from the start, and more.
TEST_F(RdmaHungDevice, PeersThatDoNotAnswerHoldNoOtherUp) {
  Make(1);
  world_->exchange_->Hold(true);
  std::vector<std::unique_ptr<TestArena>> memories;
  std::vector<std::unique_ptr<Operation>> waiting;
  for (int i = 0; i < 5; ++i) {
    memories.push_back(std::make_unique<TestArena>(kArena, 3));
    waiting.push_back(world_->transport_.Start(
        world_->WithNics(PlanOf(wire::Operation::kWrite, local_buffer_,
                                AnotherPeer(*memories.back()), 0, 0, kArena)),
        0, ++token_));
  }
  EXPECT_TRUE(PollUntil([&] { return world_->exchange_->waiting() == 5; }));
  const auto answers =
      std::make_shared<DirectExchange>(world_->target_, world_->devices_there_->Addresses());
  const TestArena memory(kArena, 4);
  const RemoteAllocation remote = {
      nullptr, std::make_shared<RdmaRemoteBuffer>(world_->transport_.AddPeer("answers", answers),
                                                  world_->Describe(memory), world_->on_there_)};
  ExpectMoves(remote, memory);
  for (const auto& operation : waiting) operation->Stop();
  Release();
  for (const auto& operation : waiting) EXPECT_TRUE(world_->Finish(*operation));
}

// The peer's word may come at any time later, or never.
TEST_F(RdmaHungDevice, TheLeaseOfThePeersEndsRunsWhileItIsAsked) {
  RdmaOptions options = SmallSlices();
  options.lease = milliseconds(300);
  Make(1, options);
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  world_->exchange_->Hold(true);
  here_->FailWork("here0", 5, WorkStatus::kRemoteAccess);
  const TimePoint begin = Clock::now();
  const auto write = WriteAll();
  ASSERT_TRUE(world_->Finish(*write, milliseconds(3'000)));
  EXPECT_GE(Clock::now() - begin, options.lease);
  EXPECT_TRUE(write->error());
  EXPECT_EQ(world_->exchange_->waiting(), 1);
  Release();
  const auto next = WriteAll();
  ExpectAllMoved(*next);
  EXPECT_TRUE(PollUntil([&] { return world_->target_.queue_pairs() == 2; }));
}

TEST_F(RdmaHungDevice, AtTheOwnerOneSessionsEndHoldsNoOtherUp) {
  Make(1);
  const auto operation = WriteAll();
  ExpectAllMoved(*operation);
  wire::QueuePairRequest request;
  request.from.mtu = 4096;
  const auto grant = world_->target_.Connect("other", {&request, 1}, false);
  ASSERT_TRUE(grant);
  there_->Hold("there0", FakeCall::kDestroyQueuePair, true);
  std::jthread ends([&] { world_->target_.End("session"); });
  while (there_->waiting("there0") != 1) std::this_thread::sleep_for(milliseconds(1));
  std::atomic<int> again = 0;
  std::jthread also([&] {
    world_->target_.End("session");
    ++again;
  });
  std::jthread others([&] { world_->target_.EndConnection("other", grant->connection); });
  while (there_->waiting("there0") != 2) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(again, 0) << "its queue pairs are not gone";
  EXPECT_EQ(world_->target_.queue_pairs(), 3u);
  there_->Hold("there0", FakeCall::kDestroyQueuePair, false);
  also.join();
  others.join();
  ends.join();
  EXPECT_EQ(world_->target_.queue_pairs(), 0u);
}

}  // namespace
}  // namespace gantry::transport
