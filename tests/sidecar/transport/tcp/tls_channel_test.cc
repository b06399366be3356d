// How bytes come out of TLS: one record at a time, and none before it was asked whether they may.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "sidecar/transport/tcp/channel/frame_receiver.h"
#include "sidecar/transport/tcp/channel/tls_security.h"
#include "tests/sidecar/peer/test_certificates.h"
#include "tests/sidecar/transport/tcp/tcp_raw_peer.h"

namespace gantry::transport {
namespace {

constexpr size_t kRecordBytesMax = 16 * 1024;
constexpr size_t kPayloadBytes = 256 * 1024;

std::pair<UniqueFd, UniqueFd> Connected() {
  std::array<int, 2> fds = {};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  for (const int fd : fds) {
    const int bytes = 4 << 20;
    EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)), 0);
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// Where a write of kPayloadBytes goes, as long as `steps` allows.
class CountingSink final : public FrameSink {
 public:
  Status OnHeader(const FrameHeader&) override { return {}; }
  Result<ScatterList*> OnControl(const FrameHeader&, std::span<const std::byte>) override {
    place_.Add(memory_.data(), memory_.size());
    return &place_;
  }
  bool MayPlace() override { return asked_++ < steps_; }
  Status OnFrame(const FrameHeader&, Outcome outcome) override {
    placed_ = outcome.placed;
    return {};
  }
  bool Full() const override { return placed_.has_value(); }
  size_t written() const {
    size_t count = 0;
    for (const std::byte value : memory_) count += value == std::byte{'x'} ? 1 : 0;
    return count;
  }

  int steps_ = INT_MAX;
  int asked_ = 0;
  std::optional<bool> placed_;

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(kPayloadBytes);
  ScatterList place_;
};

// A client whose bytes reach the server only when the test passes them on.
class TlsChannelTest : public ::testing::Test {
 protected:
  TlsChannelTest() {
    auto [client, client_far] = Connected();
    auto [server, server_far] = Connected();
    client_far_ = std::move(client_far);
    server_far_ = std::move(server_far);
    const auto issued = authority_.Issue({"DNS:b"});
    auto security =
        *TlsSecurity::Create({issued.certificate, issued.key, authority_.certificate()});
    client_ = *security->Connect(std::move(client), *security->CertificateSha256());
    server_ = *security->Accept(std::move(server));
    IoState at_client = IoState::kBlocked;
    IoState at_server = IoState::kBlocked;
    for (int i = 0; i < 100 && (at_client != IoState::kMoved || at_server != IoState::kMoved);
         ++i) {
      if (at_client == IoState::kBlocked) at_client = client_->Handshake().state;
      Pass(client_far_, server_far_, SIZE_MAX);
      if (at_server == IoState::kBlocked) at_server = server_->Handshake().state;
      Pass(server_far_, client_far_, SIZE_MAX);
    }
    EXPECT_EQ(at_client, IoState::kMoved) << client_->Why();
    EXPECT_EQ(at_server, IoState::kMoved) << server_->Why();
  }

  // Up to so many bytes; how many there were.
  static size_t Pass(const UniqueFd& from, const UniqueFd& to, size_t bytes_max) {
    std::vector<char> bytes(std::min<size_t>(bytes_max, 4 << 20));
    const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return 0;
    EXPECT_EQ(::send(to.get(), bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL), got);
    return static_cast<size_t>(got);
  }
  void SendWrite() {
    const std::string frame = RawConnection::RequestOf(
        FrameType::kWrite, RawConnection::BodyOf("b-1", 5, 0, kPayloadBytes),
        std::string(kPayloadBytes, 'x'));
    size_t sent = 0;
    while (sent < frame.size()) {
      // What comes before the payload is a record of its own.
      const size_t head = frame.size() - kPayloadBytes;
      const size_t bytes = sent < head ? head - sent : frame.size() - sent;
      const iovec part = {const_cast<char*>(frame.data()) + sent, bytes};
      const IoResult result = client_->Send(&part, 1);
      ASSERT_EQ(result.state, IoState::kMoved) << client_->Why();
      sent += result.bytes;
    }
  }

  const gantry::testing::TestAuthority authority_{"test"};
  UniqueFd client_far_, server_far_;
  std::unique_ptr<SocketChannel> client_, server_;
  CountingSink sink_;
  FrameReceiver receiver_{FrameReader::kTarget, sink_};
};

TEST_F(TlsChannelTest, BeforeEachRecordItIsAskedWhetherItMayBePlaced) {
  SendWrite();
  while (Pass(client_far_, server_far_, SIZE_MAX) > 0) {
  }
  sink_.steps_ = 2;
  ASSERT_TRUE(receiver_.Pump(*server_, UINT64_MAX));
  ASSERT_TRUE(sink_.placed_);
  EXPECT_FALSE(*sink_.placed_);
  EXPECT_EQ(sink_.asked_, 3);
  EXPECT_GT(sink_.written(), 0u);
  EXPECT_LE(sink_.written(), 2 * kRecordBytesMax);
}

TEST_F(TlsChannelTest, ItIsAskedWhenTheBytesAreThereAndNotBefore) {
  SendWrite();
  constexpr size_t kPart = 1'000;
  while (sink_.asked_ == 0) {
    ASSERT_EQ(sink_.written(), 0u);
    ASSERT_GT(Pass(client_far_, server_far_, kPart), 0u);
    ASSERT_TRUE(receiver_.Pump(*server_, UINT64_MAX));
  }
  EXPECT_GT(sink_.written(), 0u) << "asked, and then waited";
}

TEST_F(TlsChannelTest, OfAnIncompleteRecordNothingIsReceived) {
  SendWrite();
  ASSERT_EQ(Pass(client_far_, server_far_, kRecordBytesMax / 2), kRecordBytesMax / 2);
  const auto next = receiver_.Pump(*server_, UINT64_MAX);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, FrameReceiver::Next::kBlocked);
  EXPECT_FALSE(server_->HasReceived()) << "its owner would ask again and again";
  while (Pass(client_far_, server_far_, SIZE_MAX) > 0) {
  }
  ASSERT_TRUE(receiver_.Pump(*server_, UINT64_MAX));
  EXPECT_EQ(sink_.placed_, true);
  EXPECT_EQ(sink_.written(), kPayloadBytes);
}

}  // namespace
}  // namespace gantry::transport
