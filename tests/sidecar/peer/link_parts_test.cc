// The small parts of a link to a peer: its state without a session, waking, events, and waits
// between attempts.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "sidecar/peer/link/event_relay.h"
#include "sidecar/peer/link/link_state.h"
#include "sidecar/peer/link/reconnect_backoff.h"
#include "sidecar/peer/link/wake_signal.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::peer {
namespace {

using testing::In;

TEST(WakeSignalTest, ASignalThatNobodyWaitsForIsKeptOnce) {
  WakeSignal signal;
  signal.Wake();
  const TimePoint begin = Clock::now();
  signal.WaitUntil(In(60'000));
  EXPECT_LT(Clock::now() - begin, milliseconds(30'000));
  const TimePoint deadline = In(20);
  signal.WaitUntil(deadline);
  EXPECT_GE(Clock::now(), deadline);
}

TEST(EventRelayTest, NoEventIsReceivedAfterItsEnd) {
  std::vector<uint64_t> sessions;
  auto relay = std::make_unique<EventRelay>(
      [&](uint64_t session, const PeerEvent&) { sessions.push_back(session); });
  const PeerClient::EventHandler handler = relay->HandlerOf(7);
  handler(PeerAlive());
  relay.reset();
  handler(PeerAlive());
  EXPECT_EQ(sessions, std::vector<uint64_t>{7});
}

TEST(EventRelayTest, ItsEndWaitsForAnEvent) {
  std::promise<void> entered, leave;
  auto relay = std::make_unique<EventRelay>([&](uint64_t, const PeerEvent&) {
    entered.set_value();
    leave.get_future().wait();
  });
  auto event =
      std::async(std::launch::async, [handler = relay->HandlerOf(1)] { handler(PeerAlive()); });
  entered.get_future().wait();
  auto end = std::async(std::launch::async, [&] { relay.reset(); });
  EXPECT_EQ(end.wait_for(milliseconds(50)), std::future_status::timeout);
  leave.set_value();
  end.get();
  event.get();
}

TEST(ReconnectBackoffTest, TheWaitGrowsUpToItsMaximumAndStartsAnew) {
  ReconnectBackoff backoff(milliseconds(1'000), milliseconds(8'000));
  EXPECT_LE(backoff.next(), Clock::now());
  for (const int most : {1'000, 2'000, 4'000, 8'000, 8'000}) {
    const TimePoint before = Clock::now();
    backoff.Postpone();
    EXPECT_GE(backoff.next(), before + milliseconds(most / 2));
    EXPECT_LE(backoff.next(), In(most));
  }
  backoff.Reset();
  EXPECT_LE(backoff.next(), Clock::now());
  backoff.Postpone();
  EXPECT_LE(backoff.next(), In(1'000));
}

class LinkStateTest : public ::testing::Test {
 protected:
  LinkState state_{"prefill", "unix:/peer.sock"};
};

TEST_F(LinkStateTest, EventsOfEarlierSessionsAreIgnored) {
  const uint64_t first = state_.BeginOpening();
  EXPECT_TRUE(state_.Hear(first));
  const uint64_t second = state_.BeginOpening();
  EXPECT_NE(second, 0u);
  EXPECT_FALSE(state_.Hear(first));
  EXPECT_TRUE(state_.Hear(second));
}

TEST_F(LinkStateTest, ACallerHearsWhyThePeerIsNotUp) {
  EXPECT_EQ(state_.NotUp().message, "peer 'prefill' is not up: it has not answered yet");
  state_.FailOpening(Error(ErrorCode::kPeerUnavailable, "no socket"));
  EXPECT_EQ(state_.NotUp().message, "peer 'prefill' is not up: no socket");
  EXPECT_EQ(state_.Info().error->message, "no socket");
  EXPECT_EQ(state_.AwaitClient(In(20), {}).error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(state_.AwaitClient(In(10'000), milliseconds(20)).error().code, ErrorCode::kPeerLost);
}

TEST_F(LinkStateTest, CloseEndsOpeningAndWaits) {
  auto client =
      std::async(std::launch::async, [this] { return state_.AwaitClient(In(10'000), {}); });
  state_.Close();
  EXPECT_EQ(client.get().error().code, ErrorCode::kPeerLost);
  EXPECT_FALSE(state_.SetOpening(nullptr));
  EXPECT_TRUE(state_.AwaitUp(In(10'000)));
  EXPECT_FALSE(state_.AwaitClosed(In(20), true));
  state_.SetClosed();
  EXPECT_TRUE(state_.AwaitClosed(In(0), true));
}

TEST_F(LinkStateTest, StopWaitingEndsAllWaitsExceptForTheEndOfTheLink) {
  state_.StopWaiting();
  EXPECT_EQ(state_.AwaitUp(In(10'000)).error().code, ErrorCode::kShuttingDown);
  EXPECT_EQ(state_.AwaitClient(In(10'000), {}).error().code, ErrorCode::kShuttingDown);
  state_.AwaitReturn(In(10'000), milliseconds(10'000));
  EXPECT_FALSE(state_.AwaitClosed(In(10'000), true));
  EXPECT_FALSE(state_.SetOpening(nullptr));
  auto closed = std::async(std::launch::async,
                           [this] { return state_.AwaitClosed(In(10'000), /*until_stop=*/false); });
  EXPECT_EQ(closed.wait_for(milliseconds(50)), std::future_status::timeout);
  state_.SetClosed();
  EXPECT_TRUE(closed.get());
}

}  // namespace
}  // namespace gantry::peer
