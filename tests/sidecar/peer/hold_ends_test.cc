// What owners are told of transfers that have read what they hold: every end, however many come at
// once, together where the owner takes it, and not behind notifications.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/messaging/hold_table.h"
#include "sidecar/peer/link/peer_outbox.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/sidecar/peer/raw_owner.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::peer {
namespace {

using ::gantry::testing::Eventually;
using ::gantry::testing::In;
using ::gantry::testing::NodeDir;
using ::gantry::testing::RawOwner;
using ::gantry::testing::TestArena;
using ::gantry::testing::TestSidecar;

const std::string kManyAtOnce(wire::kPeerHoldUseEnds);

class HoldEndsTest : public ::testing::Test {
 protected:
  // The first is on its way, and held there, before the others are given.
  static std::set<uint64_t> EndMany(PeerOutbox& outbox, RawOwner& owner, uint64_t count) {
    owner.HoldCalls(true, false);
    std::set<uint64_t> uses;
    for (uint64_t use = 1; use <= count; ++use) {
      outbox.EndHoldUse("owner", use, true);
      uses.insert(use);
      if (use > 1) continue;
      EXPECT_TRUE(Eventually(5'000, [&] { return owner.waiting() == 1; }));
    }
    owner.HoldCalls(false, false);
    return uses;
  }

  NodeDir node_;
  CountingMapper mapper_;
  TestSidecar here_{node_, "here", mapper_};
};

TEST_F(HoldEndsTest, NoneIsRefusedForWantOfRoom) {
  constexpr size_t kReaders = 3000;
  TestSidecar there(node_, "there", mapper_);
  engine::EventLog events{1000};
  metrics::Metrics metrics("test");
  engine::HoldTable holds(there.workloads(), there.registry(), events, metrics);
  there.server_options().holds = &holds;
  there.StartServer();
  here_.ConnectTo(node_, "there");
  const TestArena arena(4096);
  const auto buffer = there.Register(arena, "k");
  ASSERT_TRUE(
      holds.Put("h", {"engine", {{{"k"}, {}}}, 60'000, kReaders}, there.workload_generation()));
  PeerOutbox outbox(here_.directory());
  const uint64_t generation = buffer->description().generation;
  std::vector<uint64_t> uses;
  for (size_t i = 0; i < kReaders; ++i) {
    const auto use =
        outbox.UseHold("there", {"engine", "h", {{{{"k", generation}}, {}}}, 60'000}, In(5'000));
    ASSERT_TRUE(use) << use.error().message;
    uses.push_back(*use);
  }
  for (const uint64_t use : uses) outbox.EndHoldUse("there", use, true);
  EXPECT_TRUE(Eventually(
      10'000, [&] { return holds.Get("engine", "h")->state == engine::HoldState::kConsumed; }))
      << holds.Get("engine", "h")->consumers << " of " << kReaders;
  there.StopServer();
}

TEST_F(HoldEndsTest, ThoseThatWaitAreSaidTogether) {
  RawOwner owner({{kManyAtOnce}});
  here_.ConnectToAddress(owner.address(), "owner");
  PeerOutbox outbox(here_.directory());
  const auto uses = EndMany(outbox, owner, wire::kPeerHoldUseEndsMax + 100);
  EXPECT_TRUE(Eventually(10'000, [&] { return owner.ended() == uses; }));
  EXPECT_EQ(owner.calls(), 3u);
}

TEST_F(HoldEndsTest, AnOwnerThatTakesOneAtATimeIsToldEach) {
  RawOwner owner({});
  here_.ConnectToAddress(owner.address(), "owner");
  PeerOutbox outbox(here_.directory());
  const auto uses = EndMany(outbox, owner, 300);
  EXPECT_TRUE(Eventually(10'000, [&] { return owner.ended() == uses; }));
  EXPECT_EQ(owner.calls(), 300u);
}

TEST_F(HoldEndsTest, AnOwnerThatHasNoThreadForItIsToldAgain) {
  RawOwner owner({{kManyAtOnce}, 3});
  here_.ConnectToAddress(owner.address(), "owner");
  PeerOutbox outbox(here_.directory());
  outbox.EndHoldUse("owner", 7, true);
  EXPECT_TRUE(Eventually(5'000, [&] { return owner.ended() == std::set<uint64_t>{7}; }));
}

TEST_F(HoldEndsTest, TheyDoNotWaitForNotifications) {
  RawOwner owner({{kManyAtOnce}});
  here_.ConnectToAddress(owner.address(), "owner");
  PeerOutbox outbox(here_.directory());
  owner.HoldCalls(false, true);
  wire::Notification notification;
  notification.id = "slow";
  std::atomic<int> outcomes{0};
  for (int i = 0; i < 3; ++i) {
    outbox.Notify("owner", notification, In(60'000),
                  [&](const Status&, std::optional<microseconds>) { ++outcomes; });
  }
  ASSERT_TRUE(Eventually(5'000, [&] { return owner.waiting() == 1; }));
  outbox.EndHoldUse("owner", 7, true);
  EXPECT_TRUE(Eventually(2'000, [&] { return owner.ended().contains(7); }));
  EXPECT_EQ(outcomes, 0);
  owner.HoldCalls(false, false);
  EXPECT_TRUE(Eventually(5'000, [&] { return outcomes == 3; }));
}

TEST_F(HoldEndsTest, AStopGivesThemUp) {
  RawOwner owner({{kManyAtOnce}});
  here_.ConnectToAddress(owner.address(), "owner");
  const TimePoint begin = Clock::now();
  {
    PeerOutbox outbox(here_.directory());
    owner.HoldCalls(true, false);
    for (uint64_t use = 1; use <= 10; ++use) outbox.EndHoldUse("owner", use, true);
    here_.directory().Close();
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(5'000));
}

}  // namespace
}  // namespace gantry::peer
