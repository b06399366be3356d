// Every call of a device, every work request and the peer API may fail: the transfer goes on or
// ends with a reason, and nothing leaks.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "sidecar/transport/rdma/verbs/completion_reason.h"
#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

class RdmaFailures : public FakeRdmaFixture {};

TEST_F(RdmaFailures, WorkThatThePeersDeviceDoesNotAnswerIsSentOnceMore) {
  for (const auto status :
       {WorkStatus::kRetryExceeded, WorkStatus::kReceiverNotReady, WorkStatus::kResponseTimeout}) {
    SCOPED_TRACE(NameOf(status));
    Make(1, SmallSlices());
    here_->FailWork("here0", 5, status);
    auto operation = WriteAll();
    ExpectAllMoved(*operation);
    EXPECT_GE(operation->progress().chunks_retried, 1u);
    EXPECT_EQ(operation->progress().chunks, operation->progress().chunks_total);
    EXPECT_EQ(world_->errors_.size(), 1u);
    operation.reset();
    TearDown();
  }
}

TEST_F(RdmaFailures, TheSecondTimeItFailsAndSaysWhatToDo) {
  Make(1, SmallSlices());
  here_->FailWork("here0", 5, WorkStatus::kRetryExceeded);
  here_->FailWork("here0", 25, WorkStatus::kRetryExceeded);
  const auto operation = WriteAll();
  ASSERT_TRUE(world_->Finish(*operation));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPeerUnavailable);
  EXPECT_NE(operation->error()->message.find("here0"), std::string::npos);
  EXPECT_NE(operation->error()->hint.find("--rdma-timeout"), std::string::npos);
  EXPECT_EQ(world_->errors_.size(), 2u);
  EXPECT_TRUE(operation->progress().error_is_counted);
  EXPECT_EQ(operation->UnfinishedItems(), std::vector<uint32_t>{0});
  const auto next = WriteAll();  // counts anew
  ExpectAllMoved(*next);
}

TEST_F(RdmaFailures, AFailureOfOneIsNotCountedForAnother) {
  Make(1, SmallSlices());
  here_->FailWork("here0", 1, WorkStatus::kRetryExceeded);
  const auto first = Start(wire::Operation::kWrite, 0, 0, 4096);
  const auto other = Start(wire::Operation::kWrite, 4096, 4096, kArena - 4096);
  ASSERT_TRUE(world_->Finish(*first));
  ASSERT_FALSE(other->finished());
  here_->FailWork("here0", 1, WorkStatus::kRetryExceeded);
  ASSERT_TRUE(world_->Finish(*other));
  EXPECT_EQ(world_->errors_.size(), 2u);
  EXPECT_FALSE(first->error());
  EXPECT_FALSE(other->error());
}

TEST_F(RdmaFailures, WhatADeviceDoesNotTakeIsPostedAgain) {
  for (int nth = 1; nth <= 20; ++nth) {
    SCOPED_TRACE("post " + std::to_string(nth));
    Make(2, SmallSlices());
    here_->FailCall("here0", FakeCall::kPost, nth, ENOMEM);
    auto operation = WriteAll();
    ExpectAllMoved(*operation);
    ASSERT_EQ(world_->errors_.size(), 1u);
    EXPECT_NE(world_->errors_[0].message.find("here0"), std::string::npos);
    operation.reset();
    TearDown();
  }
}

// Neither does it end what it has: several lanes have work that is to be posted.
TEST_F(RdmaFailures, ADeviceThatAlsoDoesNotEndItsQueuePairsIsSurvived) {
  for (int nth = 1; nth <= 20; ++nth) {
    SCOPED_TRACE("post " + std::to_string(nth));
    Make(2, SmallSlices());
    here_->FailCall("here0", FakeCall::kPost, nth, EIO);
    here_->FailCalls("here0", FakeCall::kFail, EIO);
    auto operation = WriteAll();
    ExpectAllMoved(*operation);
    operation.reset();
    TearDown();
  }
}

TEST_F(RdmaFailures, ADeviceThatNeverTakesWorkFailsTheTransfer) {
  Make(1);
  here_->FailCalls("here0", FakeCall::kPost, ENOMEM);
  const auto operation = WriteAll();
  ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kResourceExhausted);
  EXPECT_NE(operation->error()->message.find("here0"), std::string::npos);
  EXPECT_EQ(operation->progress().bytes, 0u);
}

TEST_F(RdmaFailures, ABrokenCompletionQueueIsMadeAnewAndOneThatStaysBrokenFailsTheTransfer) {
  Make(1, SmallSlices());
  here_->FailCall("here0", FakeCall::kPoll, 2, EIO);
  const auto operation = WriteAll();
  ExpectAllMoved(*operation);
  EXPECT_GE(operation->progress().chunks_retried, 1u);
  EXPECT_EQ(world_->errors_.size(), 1u);

  here_->FailCalls("here0", FakeCall::kPoll, EIO);
  const auto failing = ReadAll();
  ASSERT_TRUE(world_->Finish(*failing, milliseconds(5'000)));
  ASSERT_TRUE(failing->error());
  EXPECT_EQ(failing->error()->code, ErrorCode::kDeviceError) << failing->error()->message;
}

TEST_F(RdmaFailures, ATransferThatHasAllItsBytesDoesNotFailWithTheOthers) {
  Make(1, SmallSlices());
  here_->FailWork("here0", 1, WorkStatus::kRetryExceeded);
  const auto operation = Start(wire::Operation::kWrite, 0, 0, 4096);
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks == 1; }));
  EXPECT_FALSE(operation->error());
  ASSERT_TRUE(world_->Finish(*operation));
  EXPECT_FALSE(operation->error());
}

// A call fails once, on either side, at any of its occasions.
using gantry::testing::FakeCall;
struct Injection {
  FakeCall call;
  bool at_the_peer;
  int nth;
};

class RdmaInjection : public RdmaFailures, public ::testing::WithParamInterface<Injection> {};

TEST_P(RdmaInjection, OneFailedCallIsSurvived) {
  const auto [call, at_the_peer, nth] = GetParam();
  Make(2, SmallSlices());
  FakeVerbs& host = at_the_peer ? *there_ : *here_;
  const std::string device = at_the_peer ? "there1" : "here1";
  const int before = host.calls(device, call);
  host.FailCall(device, call, nth, EIO);
  for (int i = 0; i < 3; ++i) {
    local_.bytes()[7] = static_cast<uint8_t>(i);
    const auto write = WriteAll();
    ExpectAllMoved(*write);
    const auto read = ReadAll();
    ExpectAllMoved(*read);
  }
  EXPECT_GE(host.calls(device, call), before + nth) << "it was not called: nothing was tested";
  EXPECT_EQ(world_->errors_.size(), 1u);
  for (const Error& error : world_->errors_) EXPECT_FALSE(error.message.empty());
  // One that was left out is used again, and what was made in vain is gone at both ends.
  for (int i = 0; i < 40 && QueuePairs() != 8; ++i) {
    PollFor(milliseconds(25));
    const auto write = WriteAll();
    ExpectAllMoved(*write);
  }
  EXPECT_EQ(world_->target_.queue_pairs(), 4u);
  EXPECT_EQ(QueuePairs(), 8);
}

const Injection kInjections[] = {
    {FakeCall::kCreateCompletionQueue, false, 1},
    {FakeCall::kCreateQueuePair, false, 1},
    {FakeCall::kCreateQueuePair, false, 2},
    {FakeCall::kConnect, false, 1},
    {FakeCall::kConnect, false, 2},
    {FakeCall::kPost, false, 1},
    {FakeCall::kPost, false, 9},
    {FakeCall::kPoll, false, 1},
    {FakeCall::kPoll, false, 3},
    {FakeCall::kCreateCompletionQueue, true, 1},
    {FakeCall::kCreateQueuePair, true, 1},
    {FakeCall::kCreateQueuePair, true, 2},
    {FakeCall::kConnect, true, 1},
    {FakeCall::kConnect, true, 2},
};
INSTANTIATE_TEST_SUITE_P(Each, RdmaInjection, ::testing::ValuesIn(kInjections));

// On either side, whichever call it is that always fails.
class RdmaBadDevice : public RdmaFailures,
                      public ::testing::WithParamInterface<std::tuple<FakeCall, bool>> {};

TEST_P(RdmaBadDevice, IsLeftOutAndTriedAgainAndTheOthersGoOn) {
  const auto [call, at_the_peer] = GetParam();
  Make(2, SmallSlices());
  FakeVerbs& host = at_the_peer ? *there_ : *here_;
  host.FailCalls(at_the_peer ? "there1" : "here1", call, EIO);
  for (const TimePoint until = Clock::now() + milliseconds(400); Clock::now() < until;) {
    local_.bytes()[7] ^= 1;
    const auto write = WriteAll();
    ExpectAllMoved(*write);
    EXPECT_EQ(write->progress().chunks_retried, 0u);
  }
  EXPECT_GT(here_->work("here0").writes, 0u);
  EXPECT_EQ(here_->work("here1").writes, 0u);
  EXPECT_EQ(world_->errors_.size(), 1u) << "it is said once";
  // At first, and after a while once more.
  EXPECT_LE(here_->calls("here0", FakeCall::kCreateCompletionQueue), 2);
  host.FailCalls(at_the_peer ? "there1" : "here1", call, 0);
  for (int i = 0; i < 80 && here_->work("here1").writes == 0; ++i) {
    PollFor(milliseconds(25));
    const auto write = WriteAll();
    ExpectAllMoved(*write);
  }
  EXPECT_GT(here_->work("here1").writes, 0u);
  EXPECT_EQ(QueuePairs(), 8);
}

INSTANTIATE_TEST_SUITE_P(Each, RdmaBadDevice,
                         ::testing::Combine(::testing::Values(FakeCall::kCreateCompletionQueue,
                                                              FakeCall::kCreateQueuePair,
                                                              FakeCall::kConnect),
                                            ::testing::Bool()));

TEST_F(RdmaFailures, WhatCannotBeArmedIsMadeAnew) {
  Make(1);
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  here_->FailCall("here0", FakeCall::kArm, 1, EIO);
  const auto operation = ReadAll();
  EXPECT_TRUE(PollUntil([&] { return here_->calls("here0", FakeCall::kArm) >= 1; }));
  PollFor(milliseconds(20));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*operation);
}

// It is made anew, with pauses, and not for ever.
TEST_F(RdmaFailures, WhatCanNeverBeArmedFailsTheTransfer) {
  Make(1);
  const auto first = WriteAll();
  ExpectAllMoved(*first);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  here_->FailCalls("here0", FakeCall::kArm, EIO);
  const int before = here_->calls("here0", FakeCall::kCreateQueuePair);
  const auto operation = Start(wire::Operation::kRead, 0, 0, 1);
  ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kDeviceError);
  EXPECT_NE(operation->error()->message.find("waited for"), std::string::npos);
  EXPECT_LE(here_->calls("here0", FakeCall::kCreateQueuePair) - before, 2 * 2);
}

TEST_F(RdmaFailures, AConnectionWhoseCompletionsNobodyHearsOfIsGivenUpAfterThree) {
  Make(1);
  here_->FailCalls("here0", FakeCall::kEvents, EBADF);
  const auto refused = WriteAll();
  ASSERT_TRUE(world_->Finish(*refused, milliseconds(5'000)));
  ASSERT_TRUE(refused->error());
  EXPECT_NE(refused->error()->message.find("waited for"), std::string::npos);
  EXPECT_EQ(here_->calls("here0", FakeCall::kCreateQueuePair), 3 * 2);
  EXPECT_EQ(world_->errors_.size(), 3u);
  EXPECT_FALSE(world_->transport_.CanReach(*local_buffer_, remote_));
  EXPECT_TRUE(PollUntil([&] { return QueuePairs() == 0; }));
  here_->FailCalls("here0", FakeCall::kEvents, 0);
  const auto operation = WriteAll();
  ExpectAllMoved(*operation);
}

// More failures in a row than a session may have connections: the peer's ends of each are ended.
// Three of them end the transfer that waits.
TEST_F(RdmaFailures, AConnectionThatFailsHereLeavesNothingAtThePeer) {
  Make(1);
  for (int i = 1; i <= 6; ++i) here_->FailCall("here0", FakeCall::kConnect, i, EIO);
  for (int i = 0; i < 2; ++i) {
    const auto refused = WriteAll();
    ASSERT_TRUE(world_->Finish(*refused));
    ASSERT_TRUE(refused->error());
    EXPECT_EQ(refused->error()->code, ErrorCode::kDeviceError);
  }
  const auto operation = WriteAll();
  ExpectAllMoved(*operation);
  EXPECT_EQ(world_->errors_.size(), 6u);
  for (const Error& error : world_->errors_) EXPECT_EQ(error.code, ErrorCode::kDeviceError);
  EXPECT_EQ(world_->target_.queue_pairs(), 2u);
}

// Who comes later tries again: with nobody who does, the refusal would stand for ever.
TEST_F(RdmaFailures, APeerThatCouldNotBeConnectedIsTriedAgainByTheNext) {
  Make(1);
  world_->exchange_->Cut(true);
  auto operation = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return !world_->errors_.empty(); }));
  EXPECT_FALSE(world_->transport_.CanReach(*local_buffer_, remote_));
  operation->Stop();
  ASSERT_TRUE(world_->Finish(*operation));
  operation.reset();
  world_->exchange_->Cut(false);
  ASSERT_TRUE(PollUntil([&] {
    return world_->transport_.CanReach(*local_buffer_, remote_).has_value();
  })) << "refused for ever";
  const auto next = WriteAll();
  ExpectAllMoved(*next);
}

}  // namespace
}  // namespace gantry::transport
