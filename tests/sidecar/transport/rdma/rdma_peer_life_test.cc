// How connections to a peer begin and end: without its answer, with the session, with ports.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

class RdmaPeerLife : public FakeRdmaFixture {
 protected:
  // The session ends; another thread waits for it, as whoever takes memory back does.
  void CloseAndAwait() {
    world_->peer_->Close(Error(ErrorCode::kPeerLost, "the session is over"));
    std::atomic<bool> closed = false;
    std::jthread awaiting([&] {
      world_->peer_->AwaitClosed();
      closed = true;
    });
    EXPECT_TRUE(PollUntil([&] { return closed.load(); }));
    world_->exchange_->Hold(false);
    PollUntil([&] { return closed.load(); });
    EXPECT_FALSE(world_->peer_->holds_memory());
    EXPECT_EQ(here_->live().queue_pairs, 0);
    const Status reaches = world_->transport_.CanReach(*local_buffer_, remote_);
    ASSERT_FALSE(reaches);
    EXPECT_NE(reaches.error().message.find("the session is over"), std::string::npos);
  }
  void ExpectLost(const Operation& operation) {
    ASSERT_TRUE(world_->Finish(operation, milliseconds(5'000)));
    ASSERT_TRUE(operation.error());
    EXPECT_EQ(operation.error()->code, ErrorCode::kPeerLost);
    // Of the session no device says anything.
    EXPECT_FALSE(operation.progress().error_is_counted);
  }
};

// How long a transfer takes that fails while the peer API is cut.
class RdmaLease : public RdmaPeerLife, public ::testing::WithParamInterface<wire::Operation> {};

TEST_P(RdmaLease, WithoutThePeersWordAWriteWaitsForItAndAReadDoesNot) {
  RdmaOptions options = SmallSlices();
  options.lease = milliseconds(400);
  Make(1, options);
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  world_->exchange_->Cut(true);
  here_->FailWork("here0", 5, WorkStatus::kRemoteAccess);
  const TimePoint begin = Clock::now();
  const auto operation = Start(GetParam(), 0, 0, kArena);
  ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
  const auto took = Clock::now() - begin;
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kStaleGeneration);
  if (GetParam() == wire::Operation::kWrite) {
    EXPECT_GE(took, options.lease);
  } else {
    EXPECT_LT(took, options.lease / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Both, RdmaLease,
                         ::testing::Values(wire::Operation::kWrite, wire::Operation::kRead));

TEST_F(RdmaPeerLife, ALostWriteIsSentAgainOnlyAfterThePeersEndIsGone) {
  Make(1, SmallSlices());
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  world_->exchange_->Hold(true);
  here_->FailWork("here0", 5, WorkStatus::kRetryExceeded);
  const uint64_t before = here_->work("here0").writes;
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return world_->exchange_->waiting() == 1; }));
  PollFor(milliseconds(50));
  EXPECT_FALSE(operation->finished());
  EXPECT_LT(here_->work("here0").writes - before, kArena / 4096);
  EXPECT_EQ(here_->live().queue_pairs, 0);
  world_->exchange_->Hold(false);
  ExpectAllMoved(*operation);
}

// As often as a session may have connections, and once more.
TEST_F(RdmaPeerLife, WhatThePeerDidNotHearOfIsEndedLater) {
  RdmaOptions options = SmallSlices();
  options.lease = milliseconds(5);
  Make(1, options);
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(i);
    const auto works = WriteAll();
    ExpectAllMoved(*works);
    EXPECT_EQ(world_->target_.queue_pairs(), 2u);
    world_->exchange_->Cut(true);
    here_->FailWork("here0", 5, WorkStatus::kRemoteAccess);
    const auto fails = WriteAll();
    ASSERT_TRUE(world_->Finish(*fails));
    EXPECT_TRUE(fails->error());
    world_->exchange_->Cut(false);
  }
}

TEST_F(RdmaPeerLife, ClosedBeforeItWasUsed) {
  Make(1);
  CloseAndAwait();
  const auto operation = WriteAll();
  ExpectLost(*operation);
  EXPECT_EQ(QueuePairs(), 0);
}

TEST_F(RdmaPeerLife, ClosedWhileItConnects) {
  Make(2);
  world_->exchange_->Hold(true);
  const auto write = WriteAll();
  const auto read = ReadAll();
  ASSERT_TRUE(PollUntil([&] { return world_->exchange_->waiting() == 1; }));
  EXPECT_TRUE(world_->peer_->holds_memory());
  world_->peer_->Close(Error(ErrorCode::kPeerLost, "the session is over"));
  ExpectLost(*write);  // at once: nothing was posted
  ExpectLost(*read);
  EXPECT_TRUE(world_->peer_->holds_memory()) << "what is being made may still come";
  world_->exchange_->Hold(false);
  CloseAndAwait();
  EXPECT_TRUE(PollUntil([&] { return QueuePairs() == 0; }));
}

TEST_F(RdmaPeerLife, ClosedWithWorkInFlight) {
  Make(2, SmallSlices());
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto write = WriteAll();
  const auto read = ReadAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 8; }));
  CloseAndAwait();
  EXPECT_EQ(fabric_.pending(), 0u);
  ExpectLost(*write);
  ExpectLost(*read);
  EXPECT_TRUE(PollUntil([&] { return QueuePairs() == 0; }));
}

TEST_F(RdmaPeerLife, ClosedWhileItsLastConnectionEnds) {
  Make(1, SmallSlices());
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  world_->exchange_->Hold(true);
  here_->FailWork("here0", 5, WorkStatus::kRetryExceeded);
  const auto write = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return world_->exchange_->waiting() == 1; }));
  CloseAndAwait();
  ExpectLost(*write);
  EXPECT_TRUE(PollUntil([&] { return QueuePairs() == 0; }));
}

TEST_F(RdmaPeerLife, TheTransportGoesWhileItConnects) {
  Make(2);
  const std::shared_ptr<DirectExchange> exchange = world_->exchange_;
  exchange->Hold(true);
  auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return exchange->waiting() == 1; }));
  operation->Stop();
  ASSERT_TRUE(world_->Finish(*operation));
  operation.reset();
  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(100));
    exchange->Hold(false);
  });
  const std::shared_ptr<RdmaPeer> peer = world_->peer_;
  TearDown();
  EXPECT_FALSE(peer->holds_memory());
}

TEST_F(RdmaPeerLife, TheTransportGoesWithAConnectionThatIsUp) {
  Make(2);
  auto operation = WriteAll();
  ExpectAllMoved(*operation);
  operation.reset();
  EXPECT_GT(QueuePairs(), 0);
  const std::shared_ptr<RdmaPeer> peer = world_->peer_;
  TearDown();
  EXPECT_FALSE(peer->holds_memory());
}

class RdmaPorts : public RdmaPeerLife {
 protected:
  void SetUp() override { Make(2, SmallSlices()); }
  uint64_t Work(int device) const { return here_->work("here" + std::to_string(device)).writes; }
};

TEST_F(RdmaPorts, OneThatGoesDownWithWorkInFlightLeavesItToTheOther) {
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks > 0; }));
  ASSERT_FALSE(operation->finished());
  // Long before a device gives its peer up.
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 0; }));
  SetPort(0, false);
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  const uint64_t other = Work(1);
  ExpectAllMoved(*operation);
  EXPECT_GT(operation->progress().chunks_retried, 0u);
  EXPECT_GT(Work(1), other);
}

TEST_F(RdmaPorts, OneThatIsDownIsNotTriedWhileTheOtherIsUp) {
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  SetPort(0, false);
  const uint64_t before = Work(0);
  const auto next = WriteAll();
  ExpectAllMoved(*next);
  EXPECT_EQ(Work(0), before);
  EXPECT_EQ(next->progress().chunks_retried, 0u);
  EXPECT_TRUE(world_->errors_.empty());
}

TEST_F(RdmaPorts, OneThatIsUpAgainIsUsedAgain) {
  SetPort(0, false);
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  EXPECT_EQ(Work(0), 0u);
  SetPort(0, true);
  const auto next = WriteAll();
  ExpectAllMoved(*next);
  EXPECT_GT(Work(0), 0u);
  EXPECT_GT(Work(1), 0u);
  EXPECT_TRUE(world_->errors_.empty());
}

TEST_F(RdmaPorts, OneThatComesBackInTheMiddleOfATransferIsUsedInIt) {
  SetPort(0, false);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 0; }));
  SetPort(0, true);
  EXPECT_EQ(Work(0), 0u);
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*operation);
  EXPECT_GT(Work(0), 0u);
  EXPECT_EQ(operation->progress().chunks_retried, 0u);
}

TEST_F(RdmaPorts, WithBothDownItIsSaidWhyAndWhatWaitsGoesOnLater) {
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  SetPort(0, false);
  SetPort(1, false);
  const Status reaches = world_->transport_.CanGoThrough(*world_->kept_.front());
  ASSERT_FALSE(reaches);
  EXPECT_EQ(reaches.error().code, ErrorCode::kPathUnavailable);
  EXPECT_NE(reaches.error().message.find("active port"), std::string::npos);
  EXPECT_FALSE(reaches.error().hint.empty());
  const auto waiting = WriteAll();
  PollFor(milliseconds(30));  // less than three attempts
  EXPECT_FALSE(waiting->finished());
  SetPort(1, true);
  ExpectAllMoved(*waiting);
  EXPECT_TRUE(
      PollUntil([&] { return world_->transport_.CanReach(*local_buffer_, remote_).has_value(); }));
}

// As soft-RoCE does at times when its port goes down between a packet and its acknowledgement.
TEST_F(RdmaPorts, ADeviceThatForgetsItsWorkWhenItsPortGoesDownIsGivenUp) {
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 0; }));
  SetPort(0, false);
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks_retried > 0; }));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*operation);
  ASSERT_EQ(world_->errors_.size(), 1u);
  EXPECT_NE(world_->errors_[0].message.find("here0 went down"), std::string::npos);
}

// As soft-RoCE does when its interface is deleted.
TEST_F(RdmaPorts, ADeviceThatForgetsItsWorkAndSaysNothingOfItsPortIsGivenUp) {
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 0; }));
  here_->FailCalls("here0", FakeCall::kPort, ENODEV);
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks_retried > 0; }));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*operation);
  ASSERT_EQ(world_->errors_.size(), 1u);
  EXPECT_NE(world_->errors_[0].message.find("here0 went down"), std::string::npos);
}

TEST_F(RdmaPorts, OneThatIsSlowIsNotGivenUp) {
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() > 0; }));
  const int before = here_->calls("here0", FakeCall::kPort);
  ASSERT_TRUE(PollUntil([&] { return here_->calls("here0", FakeCall::kPort) > before + 1; }));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*operation);
  EXPECT_EQ(operation->progress().chunks_retried, 0u);
  EXPECT_TRUE(world_->errors_.empty());
}

TEST_F(RdmaPorts, AnUnpluggedDeviceLeavesItsWorkToTheOther) {
  const auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks > 0; }));
  ASSERT_FALSE(operation->finished());
  here_->Unplug("here0");
  ExpectAllMoved(*operation);
  const auto next = WriteAll();
  ExpectAllMoved(*next);
}

}  // namespace
}  // namespace gantry::transport
