// What a target does with initiators that are honest, late, slow, or lie.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/sidecar/transport/tcp/tcp_fixture.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

uint64_t In(milliseconds time) { return MonotonicNanoseconds(Clock::now() + time); }

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  size_t resident = 0;
  file >> pages >> resident;
  return resident * 4096;
}

class TcpTargetTest : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  TcpTargetTest() { Begin({}); }
  void Begin(TcpServerOptions options) {
    world_.reset();
    TcpWorldOptions world;
    world.server = options;
    world_ = std::make_unique<TcpWorld>(world);
    world_->Remote(arena_, "b-1", 5);
  }
  std::string Ticket() {
    return world_->server_->tickets().Issue("s", 1, milliseconds(5000))->front();
  }
  RawConnection Entered() {
    RawConnection connection = RawConnection::To(world_->server_->port());
    EXPECT_TRUE(connection.Enter(Ticket()));
    return connection;
  }
  std::string Bytes(size_t offset, size_t length) const {
    return {reinterpret_cast<const char*>(arena_.data()) + offset, length};
  }
  // An honest request is still answered.
  void ExpectServes() {
    RawConnection other = Entered();
    other.Send(RawConnection::RequestOf(FrameType::kRead, RawConnection::BodyOf("b-1", 5, 10, 20)));
    const auto answer = other.Next(FrameReader::kInitiator);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->payload, Bytes(10, 20));
  }
  void AwaitUnused(milliseconds time = milliseconds(5'000)) {
    const TimePoint until = Clock::now() + time;
    while (Clock::now() < until && world_->buffers_.in_use() > 0) ::usleep(10'000);
    EXPECT_EQ(world_->buffers_.in_use(), 0);
  }

  TestArena arena_{kBytes, 3};
  std::unique_ptr<TcpWorld> world_;
};

TEST_F(TcpTargetTest, ServesReadsAndWritesWithTicket) {
  RawConnection connection = Entered();
  connection.Send(RawConnection::RequestOf(FrameType::kRead,
                                           RawConnection::BodyOf("b-1", 5, kBytes / 3 - 5, 100)));
  const auto data = connection.Next(FrameReader::kInitiator);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->header.request, 7u);
  EXPECT_EQ(data->payload, Bytes(kBytes / 3 - 5, 100));
  EXPECT_EQ(data->header.payload_crc, Crc32c(0, data->payload.data(), data->payload.size()));
  connection.Send(RawConnection::RequestOf(
      FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 77, 4), "abcd", In(milliseconds(5000))));
  const auto done = connection.Next(FrameReader::kInitiator);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->header.type, FrameType::kDone);
  EXPECT_EQ(done->header.status, FrameStatus::kOk);
  EXPECT_EQ(Bytes(77, 4), "abcd");
  AwaitUnused();
}

TEST_F(TcpTargetTest, ATicketIsGoodOnceAndInTimeAndUntilTheSessionEnds) {
  const std::string ticket = Ticket();
  RawConnection first = RawConnection::To(world_->server_->port());
  EXPECT_TRUE(first.Enter(ticket));
  for (const std::string& bad : {ticket, std::string(kTicketBytes, '0')}) {
    RawConnection second = RawConnection::To(world_->server_->port());
    second.Send(RawConnection::HelloOf(bad));
    EXPECT_EQ(RefusalOf(second.Next(FrameReader::kInitiator)), ErrorCode::kUnauthenticated);
    EXPECT_TRUE(second.IsEnded());
  }
  const std::string late = world_->server_->tickets().Issue("s", 1, milliseconds(1))->front();
  ::usleep(5'000);
  EXPECT_FALSE(RawConnection::To(world_->server_->port()).Enter(late));
  const std::string void_one = Ticket();
  EXPECT_TRUE(world_->server_->EndSession("s", Clock::now() + milliseconds(5000)));
  EXPECT_FALSE(RawConnection::To(world_->server_->port()).Enter(void_one));
  EXPECT_TRUE(first.IsEnded());
}

TEST_F(TcpTargetTest, RefusesWhatIsNotExactlyTheBufferAndGoesOn) {
  world_->buffers_.Change("b-1", [](auto* entry) { entry->access.remote_write = false; });
  RawConnection connection = Entered();
  const auto refusal = [&](FrameType type, const RequestBody& body) {
    connection.Send(RawConnection::RequestOf(
        type, body, type == FrameType::kWrite ? std::string(body.bytes, 'x') : ""));
    return RefusalOf(connection.Next(FrameReader::kInitiator));
  };
  const auto body = [](const std::string& id, uint64_t generation, uint64_t offset) {
    return RawConnection::BodyOf(id, generation, offset, 10);
  };
  EXPECT_EQ(refusal(FrameType::kRead, body("b-1", 5, kBytes - 9)), ErrorCode::kOutOfRange);
  EXPECT_EQ(refusal(FrameType::kRead, body("b-1", 5, UINT64_MAX - 4)), ErrorCode::kOutOfRange);
  EXPECT_EQ(refusal(FrameType::kRead, body("b-1", 6, 0)), ErrorCode::kStaleGeneration);
  EXPECT_EQ(refusal(FrameType::kRead, body("b-2", 5, 0)), ErrorCode::kNotFound);
  const std::string before = Bytes(0, kBytes);
  EXPECT_EQ(refusal(FrameType::kWrite, body("b-1", 5, 0)), ErrorCode::kPermissionDenied);
  EXPECT_EQ(Bytes(0, kBytes), before);
  world_->buffers_.Change("b-1", [](auto* entry) { entry->suspended = true; });
  EXPECT_EQ(refusal(FrameType::kRead, body("b-1", 5, 0)), ErrorCode::kDraining);
  world_->buffers_.Change("b-1", [](auto* entry) { entry->suspended = false; });
  ExpectServes();
}

TEST_F(TcpTargetTest, AWriteIsAppliedOnlyWithinItsLease) {
  const std::string before = Bytes(0, kBytes);
  RawConnection connection = Entered();
  const auto request =
      RawConnection::RequestOf(FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 0, 1000),
                               std::string(1000, 'x'), In(milliseconds(-1)));
  connection.Send(request);
  auto answer = connection.Next(FrameReader::kInitiator);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.status, FrameStatus::kLeaseExpired);
  EXPECT_EQ(Bytes(0, kBytes), before);
  // The first half comes in time, the second one does not.
  const auto slow =
      RawConnection::RequestOf(FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 0, 1000),
                               std::string(1000, 'y'), In(milliseconds(300)));
  connection.Send(slow.substr(0, slow.size() - 500));
  ::usleep(600'000);
  EXPECT_EQ(world_->buffers_.in_use(), 0) << "the use outlives the lease";
  connection.Send(slow.substr(slow.size() - 500));
  answer = connection.Next(FrameReader::kInitiator);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.status, FrameStatus::kLeaseExpired);
  EXPECT_EQ(Bytes(0, 500), std::string(500, 'y'));
  EXPECT_EQ(Bytes(500, kBytes - 500), before.substr(500)) << "bytes moved after the lease";
  ExpectServes();
}

TEST_F(TcpTargetTest, ADamagedPayloadIsReported) {
  RawConnection connection = Entered();
  auto request = RawConnection::RequestOf(
      FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 0, 100), std::string(100, 'x'));
  request.back() = 'y';
  connection.Send(request);
  const auto answer = connection.Next(FrameReader::kInitiator);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->header.status, FrameStatus::kDamaged);
}

TEST_F(TcpTargetTest, LiesCostTheirOwnConnectionOnly) {
  RawConnection honest = Entered();
  const RequestBody body = RawConnection::BodyOf("b-1", 5, 0, 100);
  std::vector<std::string> lies = {
      std::string(200, '\0'),
      std::string(200, '\xff'),
      RawConnection::HelloOf(Ticket()),  // a second one
      RawConnection::RequestOf(FrameType::kWrite, body, std::string(99, 'x')),
      RawConnection::RequestOf(FrameType::kData, body, std::string(100, 'x')),
      RawConnection::RequestOf(FrameType::kRead, body, "x"),
      RawConnection::FrameOf({.type = FrameType::kRead}, "garbage"),
      RawConnection::FrameOf({.type = FrameType::kRead}, ""),
  };
  // A control part with another checksum: an offset must not change on its way.
  lies.push_back(RawConnection::RequestOf(FrameType::kRead, body));
  lies.back()[lies.back().size() - sizeof(uint32_t) - sizeof(uint64_t)] ^= 1;
  const std::string before = Bytes(0, kBytes);
  for (size_t i = 0; i < lies.size(); ++i) {
    RawConnection liar = Entered();
    liar.Send(lies[i]);
    EXPECT_TRUE(liar.IsEnded()) << "lie " << i;
  }
  EXPECT_EQ(Bytes(0, kBytes), before);
  honest.Send(RawConnection::RequestOf(FrameType::kRead, body));
  EXPECT_TRUE(honest.Next(FrameReader::kInitiator));
  AwaitUnused();
}

TEST_F(TcpTargetTest, ALiarIsCountedOnce) {
  const TargetHub::Totals& totals = world_->server_->totals();
  RawConnection stranger = RawConnection::To(world_->server_->port());
  stranger.Send(std::string(200, '\xff'));
  EXPECT_TRUE(stranger.IsEnded());
  RawConnection liar = Entered();
  EXPECT_EQ(world_->server_->connections(), 1u);
  liar.Send(std::string(200, '\xff'));
  EXPECT_TRUE(liar.IsEnded());
  for (int i = 0; i < 200 && world_->server_->connections() > 0; ++i) ::usleep(5'000);
  EXPECT_EQ(totals.turned_away, 1u);
  EXPECT_EQ(totals.broken, 1u);
}

TEST_F(TcpTargetTest, ARequestBeforeTheTicketIsNotServed) {
  RawConnection connection = RawConnection::To(world_->server_->port());
  connection.Send(
      RawConnection::RequestOf(FrameType::kRead, RawConnection::BodyOf("b-1", 5, 0, 100)));
  EXPECT_EQ(connection.Receive(1), "");
  EXPECT_TRUE(connection.IsEnded());
  EXPECT_EQ(world_->buffers_.acquired(), 0);
}

TEST_F(TcpTargetTest, UnauthenticatedOnesAreFewGiveWayAndDoNotStay) {
  TcpServerOptions options;
  options.unauthenticated_max = 4;
  options.hello_timeout = milliseconds(500);
  Begin(options);
  std::vector<RawConnection> strangers;
  for (int i = 0; i < 4; ++i) {
    strangers.push_back(RawConnection::To(world_->server_->port()));
    strangers.back().Send(RawConnection::HelloOf(Ticket()).substr(0, 20));
  }
  for (int i = 0; i < 200 && world_->server_->unauthenticated() < 4; ++i) ::usleep(5'000);
  EXPECT_EQ(world_->server_->connections(), 0u) << "they are counted as if they were let in";
  const RawConnection fifth = RawConnection::To(world_->server_->port());
  EXPECT_TRUE(strangers.front().IsEnded(milliseconds(300))) << "the oldest";
  for (RawConnection& stranger : strangers) EXPECT_TRUE(stranger.IsEnded(milliseconds(2'000)));
  ExpectServes();
}

TEST_F(TcpTargetTest, WhoDoesNotTakeAnswersIsPutAwayAndHoldsLittle) {
  TcpServerOptions options;
  options.progress_timeout = milliseconds(500);
  Begin(options);
  RawConnection greedy = Entered();
  const size_t before = ResidentBytes();
  const std::string request = RawConnection::RequestOf(
      FrameType::kRead, RawConnection::BodyOf("b-1", 5, 0, static_cast<uint32_t>(kBytes)));
  std::string many;
  for (int i = 0; i < 5'000; ++i) many += request;
  for (int i = 0; i < 20 && greedy.Send(many); ++i) {
  }
  EXPECT_LT(ResidentBytes(), before + (64 << 20));
  AwaitUnused(milliseconds(1'000));  // sending took five seconds
  ExpectServes();
}

TEST_F(TcpTargetTest, ASlowWriterLosesItsConnectionAndItsHold) {
  TcpServerOptions options;
  options.request_time_max = milliseconds(600);
  Begin(options);
  RawConnection slow = Entered();
  const auto request = RawConnection::RequestOf(
      FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 0, 10'000), std::string(10'000, 'x'));
  slow.Send(request.substr(0, 200));
  for (size_t i = 0; i < 20 && slow.Send(request.substr(200 + i, 1)); ++i) ::usleep(100'000);
  EXPECT_TRUE(slow.IsEnded());
  AwaitUnused();
}

TEST_F(TcpTargetTest, TicketsAndStreamsOfASessionAreLimited) {
  TcpServerOptions options;
  options.streams_per_session_max = 2;
  options.tickets_per_session_max = 3;
  Begin(options);
  EXPECT_FALSE(world_->server_->tickets().Issue("s", 4, milliseconds(5000)));
  RawConnection first = Entered();
  RawConnection second = Entered();
  RawConnection third = RawConnection::To(world_->server_->port());
  third.Send(RawConnection::HelloOf(Ticket()));
  EXPECT_EQ(RefusalOf(third.Next(FrameReader::kInitiator)), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace gantry::transport
