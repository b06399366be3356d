// What is said to peers, over real sockets: in order, once, over new sessions, within its limits.
#include "sidecar/peer/link/peer_outbox.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/sidecar/peer/test_sidecar.h"

namespace gantry::peer {
namespace {

using ::gantry::testing::Eventually;
using ::gantry::testing::In;
using ::gantry::testing::NodeDir;
using ::gantry::testing::TestArena;
using ::gantry::testing::TestSidecar;

// What became of each notification, in the order in which that was known.
class Outcomes {
 public:
  engine::DeliveryDone Note() {
    return [this](const Status& outcome, std::optional<microseconds>) {
      const MutexLock lock(mutex_);
      names_.emplace_back(outcome ? "delivered" : InfoOf(outcome.error().code).name);
    };
  }
  std::vector<std::string> names() const {
    const MutexLock lock(mutex_);
    return names_;
  }
  bool Await(size_t count) const {
    return Eventually(10'000, [&] { return names().size() >= count; });
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> names_ GUARDED_BY(mutex_);
};

class PeerOutboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    generation_ = receivers_.Put("receiver", "id", 1000, std::nullopt)->generation;
    there_.server_options().notifications = &center_;
    there_.server_options().holds = &holds_;
    there_.StartServer();
    here_.ConnectTo(node_, "there");
  }
  void TearDown() override { there_.StopServer(); }  // before what it serves

  static wire::Notification Message(const std::string& text, const std::string& to = "receiver") {
    wire::Notification notification;
    notification.from_workload = "sender";
    notification.from_workload_generation = 7;
    notification.id = text;
    notification.content = {to, 0, "", text};
    return notification;
  }
  std::vector<std::string> Received() {
    std::vector<std::string> texts;
    for (const auto& event :
         events_.Poll({"receiver", generation_}, 0, 1000, Clock::now()).events) {
      texts.push_back(event.notification->content.message);
      EXPECT_EQ(event.notification->from_peer, "here");
      EXPECT_EQ(event.notification->from_peer_generation, here_.generation());
    }
    return texts;
  }
  using Texts = std::vector<std::string>;

  NodeDir node_;
  CountingMapper mapper_;
  registry::WorkloadTable receivers_{{}, [](const auto&, auto) {}};
  engine::EventLog events_{1000};
  metrics::Metrics metrics_{"test"};
  engine::NotificationCenter center_{receivers_, events_, metrics_};
  TestSidecar there_{node_, "there", mapper_};
  engine::HoldTable holds_{there_.workloads(), there_.registry(), events_, metrics_};
  TestSidecar here_{node_, "here", mapper_};
  Outcomes outcomes_;
  uint64_t generation_ = 0;
};

TEST_F(PeerOutboxTest, DeliversInOrder) {
  PeerOutbox outbox(here_.directory());
  Texts texts;
  for (int i = 0; i < 100; ++i) texts.push_back(std::to_string(i));
  for (const auto& text : texts) outbox.Notify("there", Message(text), In(5'000), outcomes_.Note());
  ASSERT_TRUE(outcomes_.Await(100));
  EXPECT_EQ(Received(), texts);
}

TEST_F(PeerOutboxTest, SaysWhyItIsNotDelivered) {
  PeerOutbox outbox(here_.directory());
  outbox.Notify("there", Message("a", "nobody"), In(5'000), outcomes_.Note());
  ASSERT_TRUE(outcomes_.Await(1));
  outbox.Notify("nowhere", Message("b"), In(5'000), outcomes_.Note());
  EXPECT_EQ(outcomes_.names(), (Texts{"not_found", "not_found"}));
}

TEST_F(PeerOutboxTest, IsRepeatedOverANewSession) {
  PeerOutbox outbox(here_.directory());
  there_.StopServer();
  outbox.Notify("there", Message("a"), In(10'000), outcomes_.Note());
  outbox.Notify("there", Message("b"), In(10'000), outcomes_.Note());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(outcomes_.names().empty());
  there_.StartServer();
  ASSERT_TRUE(outcomes_.Await(2));
  EXPECT_EQ(outcomes_.names(), (Texts{"delivered", "delivered"}));
  EXPECT_EQ(Received(), (Texts{"a", "b"}));
}

TEST_F(PeerOutboxTest, IsGivenUpAtItsDeadline) {
  PeerOutbox outbox(here_.directory());
  there_.StopServer();
  outbox.Notify("there", Message("a"), In(200), outcomes_.Note());
  ASSERT_TRUE(outcomes_.Await(1));
  EXPECT_EQ(outcomes_.names(), Texts{"deadline_exceeded"});
}

// A connection that broke is made again in time.
TEST_F(PeerOutboxTest, ATransfersIsRepeatedOverANewSession) {
  PeerOutbox outbox(here_.directory());
  there_.StopServer();
  outbox.NotifyOfTransfer("there", Message("a"), In(60'000), outcomes_.Note());
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(outcomes_.names().empty());
  there_.StartServer();
  ASSERT_TRUE(outcomes_.Await(1));
  EXPECT_EQ(outcomes_.names(), Texts{"delivered"});
}

TEST_F(PeerOutboxTest, ATransfersIsGivenUpWhenThePeerIsDown) {
  PeerOutboxOptions options;
  options.down_max = milliseconds(300);
  PeerOutbox outbox(here_.directory(), options);
  there_.StopServer();
  outbox.Notify("there", Message("by itself"), In(60'000), outcomes_.Note());
  const TimePoint begin = Clock::now();
  for (const char* text : {"a", "b", "c"}) {  // all of them, and not one after the other
    outbox.NotifyOfTransfer("there", Message(text), In(60'000), outcomes_.Note());
  }
  ASSERT_TRUE(outcomes_.Await(3));
  EXPECT_LT(Clock::now() - begin, milliseconds(3'000));
  EXPECT_EQ(outcomes_.names(), (Texts{"peer_lost", "peer_lost", "peer_lost"}));
  there_.StartServer();
  ASSERT_TRUE(outcomes_.Await(4));
  EXPECT_EQ(outcomes_.names().back(), "delivered");
}

TEST_F(PeerOutboxTest, WhatWaitsIsLimited) {
  PeerOutboxOptions options;
  options.messages_max = 2;
  options.bytes_max = 10;
  PeerOutbox outbox(here_.directory(), options);
  there_.StopServer();
  outbox.Notify("there", Message("first"), In(500), outcomes_.Note());
  std::this_thread::sleep_for(milliseconds(50));  // it is being tried, and waits no more
  outbox.Notify("there", Message("12345"), In(500), outcomes_.Note());
  outbox.Notify("there", Message("123456"), In(500), outcomes_.Note());
  EXPECT_EQ(outcomes_.names(), Texts{"resource_exhausted"});  // bytes
  outbox.Notify("there", Message("12"), In(500), outcomes_.Note());
  outbox.Notify("there", Message("1"), In(500), outcomes_.Note());
  EXPECT_EQ(outcomes_.names(), (Texts{"resource_exhausted", "resource_exhausted"}));
  ASSERT_TRUE(outcomes_.Await(5));
}

TEST_F(PeerOutboxTest, AStopEndsWhatWaits) {
  there_.StopServer();
  {
    PeerOutbox outbox(here_.directory());
    for (int i = 0; i < 3; ++i) {
      outbox.Notify("there", Message(std::to_string(i)), In(60'000), outcomes_.Note());
    }
    here_.directory().Close();
  }
  EXPECT_EQ(outcomes_.names(), (Texts{"shutting_down", "shutting_down", "shutting_down"}));
}

TEST_F(PeerOutboxTest, AQueueEndsWhenItIsIdleAndComesBack) {
  PeerOutboxOptions options;
  options.idle_max = milliseconds(10);
  PeerOutbox outbox(here_.directory(), options);
  for (size_t i = 0; i < 5; ++i) {
    outbox.Notify("there", Message(std::to_string(i)), In(5'000), outcomes_.Note());
    ASSERT_TRUE(outcomes_.Await(i + 1));
    std::this_thread::sleep_for(milliseconds(40));
  }
  EXPECT_EQ(Received().size(), 5u);
}

TEST_F(PeerOutboxTest, AHoldIsReadAtItsOwner) {
  PeerOutbox outbox(here_.directory());
  const TestArena arena(4096);
  const auto buffer = there_.Register(arena, "k");
  ASSERT_TRUE(holds_.Put("h", {"engine", {{{"k"}, {}}}, 60'000, 1}, there_.workload_generation()));
  const uint64_t generation = buffer->description().generation;
  const wire::HoldUse use{"engine", "h", {{{{"k", generation}}, {}}}, 60'000};
  const auto number = outbox.UseHold("there", use, In(5'000));
  ASSERT_TRUE(number) << number.error().message;
  EXPECT_EQ(holds_.Get("engine", "h")->reading, 1u);
  wire::HoldUse stale = use;
  ++stale.parts[0].buffers[0].generation;
  EXPECT_EQ(outbox.UseHold("there", stale, In(5'000)).error().code, ErrorCode::kStaleGeneration);
  outbox.EndHoldUse("there", *number, true);
  EXPECT_TRUE(Eventually(
      5'000, [&] { return holds_.Get("engine", "h")->state == engine::HoldState::kConsumed; }));
  EXPECT_EQ(outbox.UseHold("there", use, In(5'000)).error().code, ErrorCode::kLeaseExpired);
}

TEST_F(PeerOutboxTest, AReaderThatIsGoneReadsNoMore) {
  const TestArena arena(4096);
  const auto buffer = there_.Register(arena, "k");
  ASSERT_TRUE(holds_.Put("h", {"engine", {{{"k"}, {}}}, 60'000, {}}, there_.workload_generation()));
  const uint64_t generation = buffer->description().generation;
  const wire::HoldUse use{"engine", "h", {{{{"k", generation}}, {}}}, 60'000};
  PeerOutbox outbox(here_.directory());
  ASSERT_TRUE(outbox.UseHold("there", use, In(5'000)));
  ASSERT_TRUE(here_.directory().Remove("there", In(5'000)));
  EXPECT_TRUE(Eventually(5'000, [&] { return holds_.Get("engine", "h")->reading == 0; }));
}

}  // namespace
}  // namespace gantry::peer
