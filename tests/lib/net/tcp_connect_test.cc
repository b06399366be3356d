#include "lib/net/tcp_connect.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace gantry::net {
namespace {

constexpr milliseconds kNextAfter{250};  // of silence

TimePoint ConnectBy(int milliseconds_from_now) {
  return Clock::now() + milliseconds(milliseconds_from_now);
}

// A listener on loopback; with `swallows` its queue is full, so that the kernel drops each SYN.
class Listener {
 public:
  explicit Listener(const char* host, bool swallows = false)
      : address_(*ParseAddress({host, 0})),
        socket_(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(::bind(socket_.get(), address_.get(), address_.bytes), 0);
    EXPECT_EQ(::getsockname(socket_.get(), address_.get(), &address_.bytes), 0);
    EXPECT_EQ(::listen(socket_.get(), swallows ? 0 : 16), 0);
    for (int i = 0; swallows && i < 4; ++i) {
      fillers_.emplace_back(::socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void)::connect(fillers_.back().get(), address_.get(), address_.bytes);
    }
    if (fillers_.empty()) return;
    pollfd first = {fillers_.front().get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&first, 1, 5'000), 1);
  }
  const SocketAddress& address() const { return address_; }
  void Close() { socket_.reset(); }  // from now on its address refuses

 private:
  SocketAddress address_;
  UniqueFd socket_;
  std::vector<UniqueFd> fillers_;
};

TEST(TcpConnect, TheNextAddressBeginsWhileOneIsSilent) {
  const Listener silent("127.0.0.1", /*swallows=*/true), works("127.0.0.1");
  const TimePoint began = Clock::now();
  const auto connected =
      ConnectAny(std::vector{silent.address(), works.address()}, ConnectBy(5'000));
  ASSERT_TRUE(connected) << connected.error().message;
  EXPECT_EQ(connected->address.Text(), works.address().Text());
  EXPECT_LT(Clock::now() - began, milliseconds(1'500));
}

TEST(TcpConnect, ASlowOneIsNotGivenUpForTheNext) {
  const Listener works("127.0.0.1"), silent("127.0.0.1", /*swallows=*/true);
  const auto connected =
      ConnectAny(std::vector{works.address(), silent.address()}, ConnectBy(5'000));
  ASSERT_TRUE(connected) << connected.error().message;
  EXPECT_EQ(connected->address.Text(), works.address().Text());
}

TEST(TcpConnect, ARefusalIsNoReasonToWait) {
  Listener refuses("127.0.0.1");
  refuses.Close();
  const Listener works("127.0.0.1");
  milliseconds fastest = milliseconds::max();  // a busy machine delays some
  for (int i = 0; i < 10 && fastest >= kNextAfter; ++i) {
    const TimePoint began = Clock::now();
    const auto connected =
        ConnectAny(std::vector{refuses.address(), works.address()}, ConnectBy(60'000));
    ASSERT_TRUE(connected) << connected.error().message;
    fastest = std::min(fastest, std::chrono::ceil<milliseconds>(Clock::now() - began));
  }
  EXPECT_LT(fastest, kNextAfter);
}

TEST(TcpConnect, ManySilentOnesLeaveTimeForTheLast) {
  const Listener silent("127.0.0.1", /*swallows=*/true), works("127.0.0.1");
  std::vector<SocketAddress> addresses(kAddressesMax - 1, silent.address());
  addresses.push_back(works.address());
  const auto connected = ConnectAny(addresses, ConnectBy(2'000));
  ASSERT_TRUE(connected) << connected.error().message;
}

TEST(TcpConnect, TheErrorNamesEveryAddressAndWhy) {
  Listener refuses("127.0.0.1");
  refuses.Close();
  const Listener silent("127.0.0.1", /*swallows=*/true);
  const auto none = ConnectAny(std::vector{refuses.address(), silent.address()}, ConnectBy(400));
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kDeadlineExceeded);
  const std::string& said = none.error().message;
  EXPECT_NE(said.find(refuses.address().Text() + ": Connection refused"), std::string::npos)
      << said;
  EXPECT_NE(said.find(silent.address().Text() + ": no answer within 4"), std::string::npos) << said;
  const auto refused = ConnectAny(std::vector{refuses.address()}, ConnectBy(400));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPeerUnavailable);
}

TEST(TcpConnect, WhoIsCancelledWaitsNoLonger) {
  const Listener silent("127.0.0.1", /*swallows=*/true);
  const TimePoint began = Clock::now();
  const auto none = ConnectAny(std::vector{silent.address()}, ConnectBy(60'000),
                               [&] { return Clock::now() - began > milliseconds(50); });
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kCancelled);
  EXPECT_LT(Clock::now() - began, milliseconds(2'000));
}

}  // namespace
}  // namespace gantry::net
