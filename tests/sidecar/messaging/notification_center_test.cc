#include "sidecar/messaging/notification_center.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "lib/base/clock.h"

namespace gantry::engine {
namespace {

class FakeMessenger final : public PeerMessenger {
 public:
  void Notify(const std::string& peer, wire::Notification notification, TimePoint,
              DeliveryDone done) override {
    sent.push_back({peer, std::move(notification)});
    waiting.push_back(std::move(done));
  }
  void NotifyOfTransfer(const std::string& peer, wire::Notification notification,
                        TimePoint deadline, DeliveryDone done) override {
    Notify(peer, std::move(notification), deadline, std::move(done));
  }
  Result<uint64_t> UseHold(const std::string&, const wire::HoldUse&, TimePoint) override {
    return Fail(ErrorCode::kNotFound, "no holds here");
  }
  void EndHoldUse(const std::string&, uint64_t, bool) override {}

  std::vector<std::pair<std::string, wire::Notification>> sent;
  std::vector<DeliveryDone> waiting;
};

class NotificationCenterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    generation_ = workloads_.Put("receiver", "one", 1000, std::nullopt)->generation;
  }

  static wire::Notification Message(const std::string& id, const std::string& text,
                                    const std::string& to = "receiver") {
    wire::Notification notification;
    notification.from_peer = "peer";
    notification.from_peer_generation = 5;
    notification.from_workload = "sender";
    notification.from_workload_generation = 7;
    notification.id = id;
    notification.content = {to, 0, "", text};
    return notification;
  }
  std::vector<std::string> Read(uint64_t generation, uint64_t cursor = 0) {
    std::vector<std::string> texts;
    const EventReader reader{"receiver", generation};
    events_.Acknowledge(reader, cursor);
    for (const Event& event : events_.Poll(reader, cursor, 10'000, Clock::now()).events) {
      if (event.notification != nullptr) texts.push_back(event.notification->content.message);
    }
    return texts;
  }

  registry::WorkloadTable workloads_{{}, [this](const registry::WorkloadInfo& workload, auto) {
                                       center_.EndWorkload(workload.name, workload.generation);
                                     }};
  EventLog events_{100, {4, 100}};
  metrics::Metrics metrics_{"test"};
  NotificationCenter center_{workloads_, events_, metrics_, 3};
  uint64_t generation_ = 0;
};

TEST_F(NotificationCenterTest, ARetryIsDeliveredOnce) {
  EXPECT_TRUE(center_.Deliver(Message("1", "a")));
  EXPECT_TRUE(center_.Deliver(Message("1", "a")));
  EXPECT_EQ(Read(generation_), std::vector<std::string>{"a"});
}

TEST_F(NotificationCenterTest, AnIdIsOfOneLifeOfOneWorkloadOfOnePeer) {
  EXPECT_TRUE(center_.Deliver(Message("1", "a")));
  wire::Notification other_life = Message("1", "b");
  other_life.from_workload_generation = 8;
  EXPECT_TRUE(center_.Deliver(other_life));
  wire::Notification other_peer = Message("1", "c");
  other_peer.from_peer_generation = 6;
  EXPECT_TRUE(center_.Deliver(other_peer));
  EXPECT_EQ(center_.Deliver(Message("1", "x")).error().code, ErrorCode::kConflict);
  EXPECT_EQ(Read(generation_), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(NotificationCenterTest, WhatWasRefusedMayComeAgain) {
  EXPECT_EQ(center_.Deliver(Message("1", "a", "late")).error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(workloads_.Put("late", "one", 1000, std::nullopt));
  EXPECT_TRUE(center_.Deliver(Message("1", "a", "late")));
}

TEST_F(NotificationCenterTest, AnotherLifeOfTheReceiverIsRefusedAndReadsNothing) {
  wire::Notification meant = Message("1", "a");
  meant.content.to_generation = generation_;
  EXPECT_TRUE(center_.Deliver(meant));
  const uint64_t next = workloads_.Put("receiver", "two", 1000, std::nullopt)->generation;
  EXPECT_TRUE(Read(next).empty());
  meant.id = "2";
  EXPECT_EQ(center_.Deliver(meant).error().code, ErrorCode::kStaleGeneration);
  EXPECT_TRUE(center_.Deliver(Message("3", "b")));
  EXPECT_EQ(Read(next), std::vector<std::string>{"b"});
  // What the life before did not read is not kept either.
  EXPECT_TRUE(Read(generation_).empty());
}

TEST_F(NotificationCenterTest, AReceiverThatDoesNotReadHasItsRoomAndNoMore) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(center_.Deliver(Message(std::to_string(i), "x")));
  EXPECT_EQ(center_.Deliver(Message("4", "x")).error().code, ErrorCode::kResourceExhausted);
  Read(generation_, 2);  // it has seen two
  EXPECT_TRUE(center_.Deliver(Message("4", "y")));
  EXPECT_TRUE(center_.Deliver(Message("5", "y")));
  EXPECT_EQ(center_.Deliver(Message("6", "y")).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(Read(generation_).size(), 4u);
}

TEST_F(NotificationCenterTest, BytesAreLimitedToo) {
  EXPECT_TRUE(center_.Deliver(Message("1", std::string(60, 'x'))));
  EXPECT_EQ(center_.Deliver(Message("2", std::string(60, 'y'))).error().code,
            ErrorCode::kResourceExhausted);
  EXPECT_TRUE(center_.Deliver(Message("3", std::string(40, 'z'))));
}

TEST_F(NotificationCenterTest, AnotherLifesCursorMakesNoRoom) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(center_.Deliver(Message(std::to_string(i), "x")));
  Read(generation_ + 1, 4);
  EXPECT_EQ(center_.Deliver(Message("4", "x")).error().code, ErrorCode::kResourceExhausted);
}

TEST_F(NotificationCenterTest, WhatTheLogDropsIsNotWaitedFor) {
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(center_.Deliver(Message(std::to_string(i), "x")));
  for (int i = 0; i < 100; ++i) events_.Append({0, EventType::kPeerUp, "", "p", "", nullptr});
  EXPECT_TRUE(center_.Deliver(Message("4", "y")));
  EXPECT_EQ(Read(generation_), std::vector<std::string>{"y"});
}

TEST_F(NotificationCenterTest, TheSenderLearnsWhatBecameOfIt) {
  FakeMessenger messenger;
  const uint64_t sender = workloads_.Put("sender", "one", 1000, std::nullopt)->generation;
  wire::Notification notification = Message("1", "a");
  notification.from_workload_generation = sender;
  center_.SendAndReport("far", notification, Clock::now());
  center_.SetMessenger(&messenger);
  center_.SendAndReport("far", notification, Clock::now());
  center_.SendAndReport("far", notification, Clock::now());
  ASSERT_EQ(messenger.sent.size(), 2u);
  messenger.waiting[0](Status(), microseconds(170));
  messenger.waiting[1](Fail(ErrorCode::kResourceExhausted, "full"), std::nullopt);
  center_.SetMessenger(nullptr);
  std::vector<std::string> outcomes;
  for (const Event& event : events_.Poll({"sender", sender}, 0, 100, Clock::now()).events) {
    ASSERT_EQ(event.type, EventType::kNotificationOutcome);
    const auto& error = event.delivery->error;
    outcomes.emplace_back(error ? InfoOf(error->code).name : "delivered");
    EXPECT_EQ(event.delivery->at_peer, error ? std::nullopt : std::optional(microseconds(170)));
  }
  EXPECT_EQ(outcomes, (std::vector<std::string>{"not_found", "delivered", "resource_exhausted"}));
}

}  // namespace
}  // namespace gantry::engine
