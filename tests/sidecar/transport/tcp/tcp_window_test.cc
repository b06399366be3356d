// What the streams to a peer take of their machine: bytes under way, by the round trip of the
// connection, and threads, by its processors.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/clock.h"
#include "sidecar/transport/tcp/channel/io_loop.h"
#include "sidecar/transport/tcp/channel/tcp_socket.h"
#include "sidecar/transport/tcp/tcp_options.h"

namespace gantry::transport {
namespace {

TEST(TcpWindow, IsWhatARoundTripNeedsWithinItsBounds) {
  TcpOptions options;
  options.window_bytes_min = 1'000'000;
  options.window_bytes_max = 4'000'000;
  EXPECT_EQ(WindowFor(options, microseconds(0)), 4'000'000u) << "not known";
  EXPECT_EQ(WindowFor(options, microseconds(40)), 1'000'000u) << "a node";
  EXPECT_EQ(WindowFor(options, microseconds(500)), 2'000'000u) << "a data centre";
  EXPECT_EQ(WindowFor(options, microseconds(20'000)), 4'000'000u) << "a continent";
  EXPECT_EQ(WindowFor(options, microseconds::max() / 10'000), 4'000'000u);
}

TEST(TcpWindow, TheKernelKnowsTheRoundTrip) {
  const auto bound = ListenTcp("127.0.0.1", 0);
  ASSERT_TRUE(bound) << bound.error().message;
  const auto connected = ConnectTcp("127.0.0.1", bound->port, Clock::now() + milliseconds(5'000));
  ASSERT_TRUE(connected) << connected.error().message;
  ASSERT_TRUE(
      AwaitSocket(bound->socket.get(), /*to_send=*/false, Clock::now() + milliseconds(5'000)));
  const auto accepted = AcceptTcp(bound->socket.get());
  ASSERT_TRUE(accepted && accepted->socket.valid());
  const TimePoint end = Clock::now() + milliseconds(5'000);
  while (RoundTripOf(connected->socket.get()).count() == 0 && Clock::now() < end) {
    ASSERT_EQ(::send(connected->socket.get(), "x", 1, MSG_NOSIGNAL), 1);
    ::usleep(1'000);
  }
  EXPECT_GT(RoundTripOf(connected->socket.get()).count(), 0);
  EXPECT_LT(RoundTripOf(connected->socket.get()), milliseconds(1'000));
  EXPECT_EQ(RoundTripOf(STDIN_FILENO).count(), 0) << "no TCP socket";
}

TEST(IoThreads, AreOneForEachStreamWithinHalfOfTheProcessors) {
  EXPECT_EQ(IoThreadsFor(4, 16), 4);
  EXPECT_EQ(IoThreadsFor(32, 16), 8);
  EXPECT_EQ(IoThreadsFor(4, 6), 3);
  EXPECT_EQ(IoThreadsFor(4, 2), 2);
  EXPECT_EQ(IoThreadsFor(1, 64), 2) << "streams of other peers share them";
  EXPECT_EQ(IoThreadsFor(4, 0), 2) << "not known";
}

}  // namespace
}  // namespace gantry::transport
