// What a target does with requests for memory of a GPU: the bytes wait in slices, and a copy that
// the test makes when it wants to brings them on.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/fakes/hand_copier.h"
#include "tests/sidecar/transport/tcp/tcp_fixture.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kGpuBytes = 1 << 20;
constexpr uint32_t kSlices = 8;

class TcpTargetStagingTest : public ::testing::Test {
 protected:
  TcpTargetStagingTest() {
    TcpWorldOptions options;
    options.server_staging = &half_;
    world_ = std::make_unique<TcpWorld>(options);
    world_->buffers_.Put("b-1", BufferOn({GpuAllocationOf(world_->mapper_, anything_, kGpuBytes)},
                                         {{0, 100, kGpuBytes - 200}}));
  }
  ~TcpTargetStagingTest() override {
    EXPECT_TRUE(
        Comes([&] { return half_.slices.in_use() == 0 && world_->buffers_.in_use() == 0; }));
  }
  RawConnection Entered() {
    RawConnection connection = RawConnection::To(world_->server_->port());
    EXPECT_TRUE(
        connection.Enter(world_->server_->tickets().Issue("s", 1, milliseconds(5000))->front()));
    return connection;
  }
  static std::string Write(uint64_t offset, const std::string& bytes,
                           milliseconds lease = milliseconds(5'000)) {
    return RawConnection::RequestOf(
        FrameType::kWrite,
        RawConnection::BodyOf("b-1", 1, offset, static_cast<uint32_t>(bytes.size())), bytes,
        MonotonicNanoseconds(Clock::now() + lease));
  }
  static std::string Read(uint64_t offset, uint32_t length) {
    return RawConnection::RequestOf(FrameType::kRead,
                                    RawConnection::BodyOf("b-1", 1, offset, length));
  }
  template <typename Condition>
  static bool Comes(const Condition& condition, milliseconds time = milliseconds(5'000)) {
    const TimePoint until = Clock::now() + time;
    while (!condition() && Clock::now() < until) ::usleep(5'000);
    return condition();
  }
  // What is sent to it soon waits at the server.
  static void StopTaking(const RawConnection& connection) {
    const int few = 64 * 1024;
    ::setsockopt(connection.fd(), SOL_SOCKET, SO_RCVBUF, &few, sizeof(few));
  }
  bool Says(RawConnection& connection, FrameStatus status) {
    const auto answer = connection.Next(FrameReader::kInitiator);
    return answer && answer->header.status == status;
  }

  std::vector<std::byte> stage_{kSlices * kStagingSliceBytes};
  HandCopier copier_{stage_, kGpuBytes};
  StagingHalf half_{SlicePool(kSlices), stage_, 0, copier_};
  const TestArena anything_{4096};
  std::unique_ptr<TcpWorld> world_;
};

TEST_F(TcpTargetStagingTest, AWriteIsAcknowledgedWhenItIsOnTheGpuAndInUseUntilThen) {
  RawConnection connection = Entered();
  const TimePoint sent = Clock::now();
  connection.Send(Write(5, "hello"));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy && copy->to_buffer && copy->end);
  EXPECT_LT(*copy->end, sent + milliseconds(5'000));
  EXPECT_GE(*copy->end, sent + milliseconds(4'900));
  EXPECT_FALSE(connection.Next(FrameReader::kInitiator, milliseconds(100)));
  EXPECT_EQ(world_->buffers_.in_use(), 1);
  copier_.Finish(*std::move(copy));
  EXPECT_TRUE(Says(connection, FrameStatus::kOk));
  std::string expected(kGpuBytes, 'g');
  expected.replace(105, 5, "hello");
  EXPECT_EQ(copier_.gpu(), expected);
}

TEST_F(TcpTargetStagingTest, ItsCopiesHaveThePriorityOfThePeersTransfer) {
  RawConnection connection = Entered();
  RequestBody body = RawConnection::BodyOf("b-1", 1, 5, 5);
  body.priority = -3;
  connection.Send(RawConnection::RequestOf(FrameType::kRead, body));
  auto read = copier_.Next();
  body.priority = 4;
  connection.Send(RawConnection::RequestOf(
      FrameType::kWrite, body, "hello", MonotonicNanoseconds(Clock::now() + milliseconds(5'000))));
  auto write = copier_.Next();
  ASSERT_TRUE(read && write);
  EXPECT_EQ(read->priority, -3);
  EXPECT_EQ(write->priority, 4);
  copier_.Finish(*std::move(read));
  copier_.Finish(*std::move(write));
}

TEST_F(TcpTargetStagingTest, AWriteWhoseCopyCameTooLateIsNotAcknowledged) {
  RawConnection connection = Entered();
  connection.Send(Write(5, "hello"));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kDeadlineExceeded, "its end"));
  EXPECT_TRUE(Says(connection, FrameStatus::kLeaseExpired));
  connection.Send(Write(5, "hello"));
  copy = copier_.Next();
  ASSERT_TRUE(copy);
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kDeviceError, "a sick GPU"));
  EXPECT_EQ(RefusalOf(connection.Next(FrameReader::kInitiator)), ErrorCode::kDeviceError);
}

TEST_F(TcpTargetStagingTest, ADamagedWriteNeverComesNearTheGpu) {
  RawConnection connection = Entered();
  std::string request = Write(0, std::string(100'000, 'x'));
  request.back() = 'y';
  connection.Send(request);
  EXPECT_TRUE(Says(connection, FrameStatus::kDamaged));
  EXPECT_FALSE(copier_.Next(milliseconds(50)));
  EXPECT_EQ(copier_.gpu(), std::string(kGpuBytes, 'g'));
}

// Whose connection read such memory once has its next reads copied ahead.
TEST_F(TcpTargetStagingTest, AnswersKeepTheOrderOfTheirRequests) {
  copier_.gpu().replace(100, 6, "abcdef");
  RawConnection connection = Entered();
  connection.Send(Read(0, 1));
  copier_.Finish(*copier_.Next());
  EXPECT_EQ(connection.Next(FrameReader::kInitiator)->payload, "a");
  connection.Send(Write(10, "12") + Read(0, 3) + Read(3, 3));
  auto write = copier_.Next();
  auto first = copier_.Next();
  auto second = copier_.Next();
  ASSERT_TRUE(write && first && second);
  copier_.Finish(*std::move(second));
  copier_.Finish(*std::move(first));
  EXPECT_FALSE(connection.Next(FrameReader::kInitiator, milliseconds(50)));
  copier_.Finish(*std::move(write));
  EXPECT_TRUE(Says(connection, FrameStatus::kOk));
  EXPECT_EQ(connection.Next(FrameReader::kInitiator)->payload, "abc");
  EXPECT_EQ(connection.Next(FrameReader::kInitiator)->payload, "def");
}

TEST_F(TcpTargetStagingTest, ASessionTakesAQuarterOfTheSlicesAheadAtMost) {
  std::array<RawConnection, 2> readers = {Entered(), Entered()};
  for (RawConnection& reader : readers) {
    reader.Send(Read(0, 1));
    copier_.Finish(*copier_.Next());
    ASSERT_TRUE(Says(reader, FrameStatus::kOk));
  }
  for (RawConnection& reader : readers) {
    for (int i = 0; i < 6; ++i) reader.Send(Read(0, 1));
  }
  // Of each connection the next one, and of both together as many as they may.
  std::vector<StagedCopy> copies;
  while (auto copy = copier_.Next(milliseconds(300))) copies.push_back(*std::move(copy));
  EXPECT_EQ(copies.size(), 2 + kSlices / 4);
  for (StagedCopy& copy : copies) copier_.Finish(std::move(copy));
  for (size_t left = 12 - copies.size(); left > 0; --left) copier_.Finish(*copier_.Next());
  for (RawConnection& reader : readers) {
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(Says(reader, FrameStatus::kOk));
  }
  EXPECT_FALSE(copier_.Next(milliseconds(50)));
}

// Its bytes are in slices: the buffer can go while a slow peer takes them.
TEST_F(TcpTargetStagingTest, AReadsBufferIsInUseUntilItIsCopied) {
  RawConnection connection = Entered();
  connection.Send(Read(0, 512 * 1024));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  EXPECT_EQ(world_->buffers_.in_use(), 1);
  copier_.Finish(*std::move(copy));
  EXPECT_EQ(world_->buffers_.in_use(), 0);
  EXPECT_EQ(connection.Next(FrameReader::kInitiator)->payload, std::string(512 * 1024, 'g'));
}

TEST_F(TcpTargetStagingTest, AWriteWaitsForSlicesAndItsLeaseEndsTheWait) {
  auto all = half_.slices.Take(kSlices, [](SliceLease) {});
  RawConnection patient = Entered();
  RawConnection late = Entered();
  late.Send(Write(0, std::string(300'000, 'l'), milliseconds(300)));
  patient.Send(Write(0, std::string(300'000, 'p')));
  EXPECT_FALSE(copier_.Next(milliseconds(100)));
  EXPECT_TRUE(Says(late, FrameStatus::kLeaseExpired));
  all->Release();
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  copier_.Finish(*std::move(copy));
  EXPECT_TRUE(Says(patient, FrameStatus::kOk));
  EXPECT_EQ(copier_.gpu().substr(100, 300'000), std::string(300'000, 'p'));
}

TEST_F(TcpTargetStagingTest, WhoLeavesWhileItWaitsForSlicesKeepsNoBuffer) {
  auto all = half_.slices.Take(kSlices, [](SliceLease) {});
  RawConnection reader = Entered();
  RawConnection writer = Entered();
  reader.Send(Read(0, 100));
  writer.Send(Write(0, "bytes"));
  ASSERT_TRUE(Comes([&] { return world_->buffers_.in_use() == 2; }));
  EXPECT_TRUE(world_->server_->EndSession("s", Clock::now() + milliseconds(5'000)));
  EXPECT_EQ(world_->buffers_.in_use(), 0);
  all->Release();
  EXPECT_FALSE(copier_.Next(milliseconds(50)));
}

// It is not watched while its write waits for slices: that nobody is there any more is seen still.
TEST_F(TcpTargetStagingTest, WhoseConnectionBreaksWhileItWaitsForSlicesIsLetGo) {
  auto all = half_.slices.Take(kSlices, [](SliceLease) {});
  RawConnection writer = Entered();
  writer.Send(Write(0, std::string(300'000, 'w'), milliseconds(60'000)));
  ASSERT_TRUE(Comes([&] { return world_->buffers_.in_use() == 1; }));
  const linger at_once = {1, 0};
  ::setsockopt(writer.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  writer.Close();
  EXPECT_TRUE(Comes([&] { return world_->buffers_.in_use() == 0; }, milliseconds(1'000)));
}

// Reads that come while an answer is being sent take no slices that the one before them then waits
// for: both connections get all of their answers from fewer slices than they ask for.
TEST_F(TcpTargetStagingTest, ReadsBehindASlowPeerLeaveTheSlicesToThoseBeforeThem) {
  constexpr uint32_t kRead = 512 * 1024;
  std::array<RawConnection, 2> readers = {Entered(), Entered()};
  std::array<int, 2> asked = {};
  for (size_t i = 0; i < readers.size(); ++i) {
    StopTaking(readers[i]);
    // Until the last one is on its way, and stays there, with nothing behind it.
    const auto is_sent = [&] { return half_.slices.in_use() == i; };
    do {
      ASSERT_LT(++asked[i], 100);
      readers[i].Send(Read(0, kRead));
      copier_.Finish(*copier_.Next());
    } while (Comes(is_sent, milliseconds(300)));
  }
  std::thread copies([this] {
    while (auto copy = copier_.Next(milliseconds(1'500))) copier_.Finish(*std::move(copy));
  });
  for (int i = 0; i < 10; ++i) {
    for (RawConnection& reader : readers) reader.Send(Read(0, kRead));
  }
  ::usleep(100'000);
  std::array<std::atomic<int>, 2> answers = {};
  std::vector<std::thread> takers;
  for (size_t i = 0; i < readers.size(); ++i) {
    takers.emplace_back([&, i] {
      while (answers[i] < asked[i] + 10) {
        const auto answer = readers[i].Next(FrameReader::kInitiator, milliseconds(3'000));
        if (!answer || answer->payload.size() != kRead) return;
        ++answers[i];
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  copies.join();
  EXPECT_EQ(answers[0], asked[0] + 10);
  EXPECT_EQ(answers[1], asked[1] + 10);
}

TEST_F(TcpTargetStagingTest, TheEndOfASessionWaitsForItsCopies) {
  RawConnection connection = Entered();
  connection.Send(Write(0, "bytes"));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  EXPECT_FALSE(world_->server_->EndSession("s", Clock::now() + milliseconds(200)));
  EXPECT_TRUE(Comes([&] { return copier_.aborts() == 1; }));  // by force, after a second
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kWorkerLost, "it was ended"));
  EXPECT_TRUE(world_->server_->EndSession("s", Clock::now() + milliseconds(5'000)));
}

}  // namespace
}  // namespace gantry::transport
