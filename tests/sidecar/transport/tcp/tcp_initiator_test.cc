// What an initiator does with targets that vanish, break, are slow, or lie.
#include <gtest/gtest.h>

#include <thread>

#include "tests/sidecar/transport/tcp/tcp_fixture.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;

TcpWorldOptions Quick() {
  TcpWorldOptions options;
  options.tcp.streams_per_peer = 1;
  options.tcp.progress_timeout = milliseconds(600);
  options.tcp.connect_timeout = milliseconds(500);
  options.tcp.backoff_min = milliseconds(10);
  options.tcp.lease = milliseconds(700);
  options.tcp.lease_margin = milliseconds(100);
  return options;
}

std::string DoneFor(const RawConnection::Frame& request, FrameStatus status) {
  FrameHeader header;
  header.type = FrameType::kDone;
  header.status = status;
  header.request = request.header.request;
  header.clock = MonotonicNanoseconds();
  return RawConnection::FrameOf(header, "");
}

class TcpInitiatorTest : public ::testing::Test {
 protected:
  explicit TcpInitiatorTest(const TcpWorldOptions& options = Quick()) : world_(options) {
    opener_ = std::make_shared<FakeStreamOpener>(nullptr, "s");
    opener_->set_port(target_.port());
    peer_ = world_.transport_->AddPeer("far", opener_);
    remote_ = {nullptr, std::make_shared<TcpRemoteBuffer>(peer_, "b-1", 5, kBufferBytes)};
  }
  ~TcpInitiatorTest() override { peer_.reset(); }

  std::unique_ptr<Operation> Start(wire::Operation operation, uint64_t length = 1000) {
    return world_.transport_->Start(
        PlanOf(operation, world_.Local(arena_), remote_, 100, 200, length), 0, 1);
  }
  RawConnection Accepted() {
    RawConnection connection = target_.Accept();
    EXPECT_TRUE(connection.Welcome());
    return connection;
  }
  static std::string DataFor(const RawConnection::Frame& request, const std::string& bytes) {
    FrameHeader header;
    header.type = FrameType::kData;
    header.request = request.header.request;
    header.clock = MonotonicNanoseconds();
    header.has_payload_crc = true;
    return RawConnection::FrameOf(header, "", bytes);
  }
  std::string Local(size_t offset, size_t length) const {
    return {reinterpret_cast<const char*>(arena_.data()) + offset, length};
  }

  TestArena arena_{kBufferBytes, 1};
  RawTarget target_;
  TcpWorld world_;
  std::shared_ptr<FakeStreamOpener> opener_;
  std::shared_ptr<TcpPeer> peer_;
  RemoteAllocation remote_;
};

TcpWorldOptions WithLongBackoff() {
  TcpWorldOptions options = Quick();
  options.tcp.backoff_min = milliseconds(1'000);
  return options;
}

class TcpInitiatorBackoffTest : public TcpInitiatorTest {
 protected:
  TcpInitiatorBackoffTest() : TcpInitiatorTest(WithLongBackoff()) {}
};

TEST_F(TcpInitiatorBackoffTest, APeerThatNobodyListensForFailsItsTransfersUntilTheNextAttempt) {
  const uint16_t unused_port = RawTarget().port();
  opener_->set_port(unused_port);
  auto operation = Start(wire::Operation::kRead);
  ASSERT_TRUE(world_.Finish(*operation, milliseconds(3000)));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPeerUnavailable);
  EXPECT_NE(operation->error()->message.find("far"), std::string::npos);
  EXPECT_EQ(operation->UnfinishedItems(), std::vector<uint32_t>{0});
  const auto reach = world_.transport_->CanReach(*world_.Local(arena_), remote_);
  ASSERT_FALSE(reach);
  EXPECT_EQ(reach.error().code, ErrorCode::kPathUnavailable);
  // One failed attempt is not for ever.
  opener_->set_port(target_.port());
  const auto reachable = [&] {
    return world_.transport_->CanReach(*world_.Local(arena_), remote_).has_value();
  };
  for (int i = 0; i < 500 && !reachable(); ++i) ::usleep(10'000);
  ASSERT_TRUE(reachable());
  auto next = Start(wire::Operation::kRead);
  RawConnection connection = Accepted();
  const auto request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  connection.Send(DataFor(*request, std::string(1000, 'q')));
  EXPECT_TRUE(world_.Finish(*next) && !next->error());
}

TEST_F(TcpInitiatorTest, APeerThatGivesNoTicketFailsItsTransfers) {
  opener_->set_failure(Error(ErrorCode::kPermissionDenied, "no streams for you"));
  auto operation = Start(wire::Operation::kRead);
  ASSERT_TRUE(world_.Finish(*operation, milliseconds(3000)));
  EXPECT_NE(operation->error()->message.find("no streams for you"), std::string::npos);
}

TEST_F(TcpInitiatorTest, APeerThatStandsStillFailsItsTransfersInTime) {
  auto operation = Start(wire::Operation::kRead);
  RawConnection first = Accepted();
  const TimePoint begun = Clock::now();
  // The second attempt gets a connection that says nothing either.
  std::jthread second([this] {
    RawConnection connection = Accepted();
    ::usleep(2'000'000);
  });
  ASSERT_TRUE(world_.Finish(*operation, milliseconds(5000)));
  EXPECT_GT(Clock::now() - begun, milliseconds(600));
  EXPECT_LT(Clock::now() - begun, milliseconds(2500));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPeerLost);
}

TEST_F(TcpInitiatorTest, WhatABrokenStreamDidNotAnswerIsAskedForOnceMore) {
  auto operation = Start(wire::Operation::kRead);
  RawConnection first = Accepted();
  auto request = first.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  const std::string answer = DataFor(*request, std::string(1000, 'z'));
  first.Send(answer.substr(0, 300));  // half of it
  first.Close();
  RawConnection second = Accepted();
  request = second.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  second.Send(DataFor(*request, std::string(1000, 'z')));
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_FALSE(operation->error()) << operation->error()->message;
  EXPECT_EQ(Local(100, 1000), std::string(1000, 'z'));
  EXPECT_EQ(operation->progress().chunks_retried, 1u);
}

TEST_F(TcpInitiatorTest, TwoBrokenStreamsAreAnError) {
  auto operation = Start(wire::Operation::kRead);
  for (int i = 0; i < 2; ++i) {
    RawConnection connection = Accepted();
    ASSERT_TRUE(connection.Next(FrameReader::kTarget));
  }
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_EQ(operation->error()->code, ErrorCode::kPeerLost);
  EXPECT_NE(operation->error()->message.find("127.0.0.1:"), std::string::npos);
}

TEST_F(TcpInitiatorTest, AWriteSaysWhenItsLeaseEndsOnTheTargetsClock) {
  auto operation = Start(wire::Operation::kWrite);
  RawConnection connection = target_.Accept();
  constexpr uint64_t kFarAhead = 1'000'000'000'000'000;  // clocks of two machines share nothing
  const uint64_t offset = kFarAhead - MonotonicNanoseconds();
  ASSERT_TRUE(connection.Welcome(MonotonicNanoseconds() + offset));
  const auto request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  const uint64_t latest = MonotonicNanoseconds() + offset + 700'000'000;
  EXPECT_LE(request->header.clock, latest);
  EXPECT_GT(request->header.clock, latest - 300'000'000);
  EXPECT_EQ(request->payload, Local(100, 1000));
  connection.Send(DoneFor(*request, FrameStatus::kOk));
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_FALSE(operation->error());
}

TEST_F(TcpInitiatorTest, AWriteThatBrokeIsQuietOnlyWhenItsLeaseIsOver) {
  const TimePoint begun = Clock::now();
  auto operation = Start(wire::Operation::kWrite);
  RawConnection connection = Accepted();
  ASSERT_TRUE(connection.Next(FrameReader::kTarget));
  operation->Stop();
  connection.Close();
  EXPECT_FALSE(world_.Finish(*operation, milliseconds(500)));
  ASSERT_TRUE(world_.Finish(*operation, milliseconds(3000)));
  EXPECT_GT(Clock::now() - begun, milliseconds(700));
  EXPECT_LT(Clock::now() - begun, milliseconds(1500));
}

TEST_F(TcpInitiatorTest, AWriteThatWasSentAgainEndsOnlyWhenTheFirstLeaseIsOver) {
  const TimePoint begun = Clock::now();
  auto operation = Start(wire::Operation::kWrite);
  RawConnection first = Accepted();
  ASSERT_TRUE(first.Next(FrameReader::kTarget));
  first.Close();
  RawConnection second = Accepted();
  const auto request = second.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  second.Send(DoneFor(*request, FrameStatus::kOk));
  EXPECT_FALSE(world_.Finish(*operation, milliseconds(300)));
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_FALSE(operation->error());
  EXPECT_GT(Clock::now() - begun, milliseconds(700));
}

// A job of more than two sockets hold, and few enough parts to be taken back in one turn.
class TcpInitiatorStopTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr uint64_t kParts = 12;

  TcpInitiatorStopTest() {
    const auto opener = std::make_shared<FakeStreamOpener>(nullptr, "s");
    opener->set_port(target_.port());
    peer_ = world_.transport_->AddPeer("far", opener);
    stopped_ = Start(kParts * kMiB);
    connection_ = target_.Accept();
    EXPECT_TRUE(connection_.Welcome());
    ::usleep(300'000);  // until the sockets are full
  }
  ~TcpInitiatorStopTest() override { peer_.reset(); }
  static TcpWorldOptions WideWindow() {
    TcpWorldOptions options = Quick();
    options.tcp.part_bytes_max = kMiB;
    options.tcp.window_bytes_min = options.tcp.window_bytes_max = kParts * kMiB;
    options.tcp.window_requests = kParts;
    options.tcp.progress_timeout = milliseconds(10'000);
    return options;
  }
  std::unique_ptr<Operation> Start(uint64_t bytes) {
    const RemoteAllocation remote = {
        nullptr, std::make_shared<TcpRemoteBuffer>(peer_, "b-1", 5, kParts * kMiB)};
    return world_.transport_->Start(
        PlanOf(wire::Operation::kWrite, world_.Local(arena_), remote, 0, 0, bytes), 0, 1);
  }

  const TestArena arena_{kParts * kMiB, 1};
  RawTarget target_;
  TcpWorld world_{WideWindow()};
  std::shared_ptr<TcpPeer> peer_;
  std::unique_ptr<Operation> stopped_;
  RawConnection connection_;
};

// What was taken for a stream and not begun needs no lease, so that a stopped write is quiet as
// soon as its last lease, from before the stop, is over.
TEST_F(TcpInitiatorStopTest, NothingIsSentAfterwards) {
  stopped_->Stop();
  uint64_t received = 0;
  while (const auto request = connection_.Next(FrameReader::kTarget, milliseconds(500))) {
    ++received;
    ASSERT_TRUE(connection_.Send(DoneFor(*request, FrameStatus::kOk)));
  }
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, kParts - 2);
  ASSERT_TRUE(world_.Finish(*stopped_, milliseconds(1'000)));
  EXPECT_EQ(stopped_->progress().bytes, received * kMiB);
}

TEST_F(TcpInitiatorStopTest, WhatItTookBackMakesRoomForOthersAtOnce) {
  auto other = Start(1'000);
  stopped_->Stop();
  bool came = false;
  while (const auto request = connection_.Next(FrameReader::kTarget, milliseconds(2'000))) {
    came = request->payload.size() == 1'000;  // none of them is answered
    if (came) break;
  }
  EXPECT_TRUE(came);
  peer_->Close(Error(ErrorCode::kPeerLost, "the test ends"));
  EXPECT_TRUE(world_.Finish(*stopped_) && world_.Finish(*other));
}

TEST_F(TcpInitiatorTest, AbortEndsAReadAtOnce) {
  auto read = Start(wire::Operation::kRead);
  RawConnection connection = Accepted();
  ASSERT_TRUE(connection.Next(FrameReader::kTarget));
  read->Abort();
  EXPECT_TRUE(world_.Finish(*read, milliseconds(400)));
  EXPECT_TRUE(connection.IsEnded());
}

TEST_F(TcpInitiatorTest, DamagedBytesAreAskedForOnceMore) {
  for (const bool again : {false, true}) {
    auto operation = Start(wire::Operation::kRead);
    static RawConnection connection;
    if (!again) connection = Accepted();
    auto request = connection.Next(FrameReader::kTarget);
    ASSERT_TRUE(request);
    std::string damaged = DataFor(*request, std::string(1000, 'a'));
    damaged.back() = 'b';
    connection.Send(damaged);
    request = connection.Next(FrameReader::kTarget);
    ASSERT_TRUE(request);
    std::string second = DataFor(*request, std::string(1000, 'c'));
    if (again) second.back() = 'd';
    connection.Send(second);
    ASSERT_TRUE(world_.Finish(*operation));
    EXPECT_EQ(operation->error().has_value(), again);
    if (again) {
      EXPECT_EQ(operation->error()->code, ErrorCode::kDeviceError);
      connection.Close();
    }
  }
}

TEST_F(TcpInitiatorTest, AnExpiredLeaseIsTriedOnceMore) {
  auto operation = Start(wire::Operation::kWrite);
  RawConnection connection = Accepted();
  for (int i = 0; i < 2; ++i) {
    const auto request = connection.Next(FrameReader::kTarget);
    ASSERT_TRUE(request);
    connection.Send(DoneFor(*request, FrameStatus::kLeaseExpired));
  }
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_EQ(operation->error()->code, ErrorCode::kDeadlineExceeded);
}

TEST_F(TcpInitiatorTest, ARefusalIsTheTransfersErrorAndSparesTheStream) {
  auto operation = Start(wire::Operation::kRead);
  RawConnection connection = Accepted();
  auto request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  FrameHeader header;
  header.type = FrameType::kDone;
  header.status = FrameStatus::kRefused;
  header.request = request->header.request;
  connection.Send(RawConnection::FrameOf(
      header, EncodeProblem(Error(ErrorCode::kStaleGeneration, "it was replaced"))));
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_EQ(operation->error()->code, ErrorCode::kStaleGeneration);
  auto next = Start(wire::Operation::kRead);
  request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  connection.Send(DataFor(*request, std::string(1000, 'q')));
  ASSERT_TRUE(world_.Finish(*next));
  EXPECT_FALSE(next->error());
}

TEST_F(TcpInitiatorTest, LiesOfATargetEndItsConnectionAndTouchNothingElse) {
  const std::string before = Local(0, kBufferBytes);
  using Lie = std::function<std::string(const RawConnection::Frame&)>;
  const std::vector<Lie> lies = {
      [](const auto& request) { return DataFor(request, std::string(1001, 'x')); },
      [](const auto& request) { return DataFor(request, std::string(999, 'x')); },
      [](auto request) {
        ++request.header.request;
        return DataFor(request, std::string(1000, 'x'));
      },
      [](const auto& request) { return DoneFor(request, FrameStatus::kOk); },
      [](const auto&) { return std::string(1000, '\xee'); },
      [](const auto& request) { return DoneFor(request, FrameStatus::kRefused); },
      [](const auto&) { return RawConnection::FrameOf({.type = FrameType::kPong}, ""); },
      [](const auto&) { return RawConnection::FrameOf({.type = FrameType::kWelcome}, "abcd"); },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    auto operation = Start(wire::Operation::kRead);
    for (int attempt = 0; attempt < 2; ++attempt) {
      RawConnection connection = Accepted();
      const auto request = connection.Next(FrameReader::kTarget);
      ASSERT_TRUE(request) << "lie " << i;
      connection.Send(lies[i](*request));
      EXPECT_TRUE(connection.IsEnded()) << "lie " << i;
    }
    ASSERT_TRUE(world_.Finish(*operation)) << "lie " << i;
    EXPECT_TRUE(operation->error());
  }
  EXPECT_EQ(Local(0, kBufferBytes), before);
}

TEST_F(TcpInitiatorTest, TheEndOfTheSessionFailsWhatRunsAndWhatWaits) {
  auto running = Start(wire::Operation::kRead);
  RawConnection connection = Accepted();
  ASSERT_TRUE(connection.Next(FrameReader::kTarget));
  peer_->Close(Error(ErrorCode::kPeerLost, "the session ended"));
  peer_->AwaitClosed();
  auto late = Start(wire::Operation::kRead);
  for (const auto& operation : {&running, &late}) {
    ASSERT_TRUE(world_.Finish(**operation, milliseconds(2000)));
    EXPECT_EQ((*operation)->error()->code, ErrorCode::kPeerLost);
  }
}

TEST_F(TcpInitiatorTest, AnIdleStreamIsKeptByPingsAndADeadOneIsFound) {
  auto operation = Start(wire::Operation::kRead);
  RawConnection connection = Accepted();
  const auto request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  connection.Send(DataFor(*request, std::string(1000, 'q')));
  ASSERT_TRUE(world_.Finish(*operation));
  const auto ping = connection.Next(FrameReader::kTarget);  // after two seconds
  ASSERT_TRUE(ping);
  EXPECT_EQ(ping->header.type, FrameType::kPing);
  EXPECT_TRUE(connection.IsEnded(milliseconds(2'000)));  // nobody answered it
}

}  // namespace
}  // namespace gantry::transport
