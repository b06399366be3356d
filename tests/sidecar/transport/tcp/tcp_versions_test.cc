// Both sides of a data connection with a sidecar that is one version behind: it hears nothing that
// it does not know, and a transfer's priority is said where both know it.
#include <gtest/gtest.h>

#include "tests/sidecar/transport/tcp/tcp_fixture.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

constexpr size_t kArenaBytes = 4096;
constexpr int kPriority = 7;

class TcpVersions : public ::testing::Test {
 protected:
  // The version that the server chooses for an initiator of these; nothing: it refuses.
  std::optional<uint16_t> AnswerTo(uint16_t version_min, uint16_t version_max) {
    RawConnection connection = RawConnection::To(world_.server_->port());
    HelloBody hello;
    hello.version_min = version_min;
    hello.version_max = version_max;
    hello.ticket = world_.server_->tickets().Issue("s", 1, milliseconds(5'000))->front();
    FrameHeader header;
    header.type = FrameType::kHello;
    connection.Send(RawConnection::FrameOf(header, EncodeHello(hello)));
    const auto answer = connection.Next(FrameReader::kInitiator);
    if (!answer || answer->header.status != FrameStatus::kOk) return std::nullopt;
    const auto welcome = DecodeWelcome(std::as_bytes(std::span(answer->control)));
    if (!welcome) return std::nullopt;
    return welcome->version;
  }
  TcpWorld world_;
  TestArena arena_{kArenaBytes, 1};
};
class TcpVersionsTest : public TcpVersions, public ::testing::WithParamInterface<uint16_t> {};

TEST_P(TcpVersionsTest, AnInitiatorSaysThePriorityToATargetThatKnowsIt) {
  RawTarget target;
  const auto opener = std::make_shared<FakeStreamOpener>(nullptr, "s");
  opener->set_port(target.port());
  const auto peer = world_.transport_->AddPeer("far", opener);
  const RemoteAllocation remote = {
      nullptr, std::make_shared<TcpRemoteBuffer>(peer, "b-1", uint64_t{5}, kArenaBytes)};
  auto operation = world_.transport_->Start(
      PlanOf(wire::Operation::kRead, world_.Local(arena_), remote, 0, 0, 100), kPriority, 1);
  RawConnection connection = target.Accept();
  ASSERT_TRUE(connection.Welcome(MonotonicNanoseconds(), GetParam()));
  const auto request = connection.Next(FrameReader::kTarget);
  ASSERT_TRUE(request);
  const auto body = DecodeRequest(std::as_bytes(std::span(request->control)));
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->priority, GetParam() == 1 ? 0 : kPriority);
  FrameHeader header;
  header.type = FrameType::kData;
  header.request = request->header.request;
  header.has_payload_crc = true;
  connection.Send(RawConnection::FrameOf(header, "", std::string(100, 'd')));
  EXPECT_TRUE(world_.Finish(*operation) && !operation->error());
  operation.reset();
}

TEST_P(TcpVersionsTest, ATargetAnswersWithTheNewestThatTheInitiatorKnows) {
  EXPECT_EQ(AnswerTo(1, GetParam()), GetParam());
}

TEST_F(TcpVersions, ANewerInitiatorIsAnsweredWithThisVersion) {
  EXPECT_EQ(AnswerTo(1, kTcpVersion + 1), kTcpVersion);
  EXPECT_EQ(AnswerTo(kTcpVersion + 1, kTcpVersion + 1), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Versions, TcpVersionsTest, ::testing::Values(1, 2),
                         [](const auto& test) { return "Version" + std::to_string(test.param); });

}  // namespace
}  // namespace gantry::transport
