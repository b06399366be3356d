// What is known of a peer's data connections without a transfer.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/sidecar/transport/tcp/tcp_fixture.h"

namespace gantry::transport {
namespace {

constexpr auto kNobodyCancels = [] { return false; };

TcpWorldOptions ThatChecksSoon() {
  TcpWorldOptions options;
  options.tcp.check_again = milliseconds(50);
  return options;
}

class TcpCheckTest : public ::testing::Test {
 protected:
  void Check() { world_.peer_->Check(Clock::now() + milliseconds(5'000), kNobodyCancels); }
  bool ReachedWithin(int limit_ms) {
    const TimePoint end = Clock::now() + milliseconds(limit_ms);
    while (!world_.peer_->Reached() && Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return world_.peer_->Reached().has_value();
  }

  TcpWorld world_{ThatChecksSoon()};
};

TEST_F(TcpCheckTest, LeavesNoConnection) {
  Check();
  EXPECT_TRUE(world_.peer_->Reached());
  EXPECT_EQ(world_.transport_->Totals().open, 0u);
  const TimePoint end = Clock::now() + milliseconds(5'000);
  while (world_.server_->connections() != 0 && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(world_.server_->connections(), 0u);
}

TEST_F(TcpCheckTest, SaysWhereNothingAnswersAndFindsOutWhenItDoes) {
  const uint16_t works = world_.server_->port();
  world_.opener_->set_port(1);
  Check();
  const Status reached = world_.peer_->Reached();
  ASSERT_FALSE(reached);
  EXPECT_EQ(reached.error().code, ErrorCode::kPeerUnavailable);
  EXPECT_NE(reached.error().message.find("127.0.0.1:1: Connection refused"), std::string::npos)
      << reached.error().message;
  EXPECT_TRUE(world_.peer_->Usable()) << "a transfer tries by itself";
  EXPECT_FALSE(ReachedWithin(200));
  world_.opener_->set_port(works);
  EXPECT_TRUE(ReachedWithin(5'000));
  const int calls = world_.opener_->calls();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(world_.opener_->calls(), calls) << "then nobody asks again";
}

TEST_F(TcpCheckTest, ATransferThatFailsSaysSoUntilSomethingWorks) {
  const uint16_t works = world_.server_->port();
  world_.opener_->set_port(1);
  const TestArena arena(4096);
  auto operation = world_.transport_->Start(
      PlanOf(wire::Operation::kRead, world_.Local(arena), world_.Remote(arena), 0, 0, 1), 0, 1);
  ASSERT_TRUE(world_.Finish(*operation));
  EXPECT_FALSE(world_.peer_->Reached());
  world_.opener_->set_port(works);
  EXPECT_TRUE(ReachedWithin(5'000));
}

TEST_F(TcpCheckTest, EndsWithTheSession) {
  world_.opener_->set_port(1);
  Check();
  world_.peer_->Close(Error(ErrorCode::kPeerLost, "the session is over"));
  std::this_thread::sleep_for(milliseconds(100));
  const int calls = world_.opener_->calls();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(world_.opener_->calls(), calls);
  EXPECT_EQ(world_.peer_->Reached().error().code, ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace gantry::transport
