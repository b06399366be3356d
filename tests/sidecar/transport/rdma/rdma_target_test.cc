// The owner's ends: limits, sessions apart from each other, and threads that connect and end.
#include "sidecar/transport/rdma/rdma_target.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/fakes/fake_verbs.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeCall;
using gantry::testing::FakeLive;

class RdmaTargetTest : public ::testing::Test {
 protected:
  void Make(const RdmaTarget::Limits& limits) { target_.emplace(*devices_, limits); }
  // A pair on each of these devices.
  static std::vector<wire::QueuePairRequest> Requests(const std::vector<uint32_t>& devices) {
    std::vector<wire::QueuePairRequest> requests;
    for (const uint32_t device : devices) {
      wire::QueuePairRequest request;
      request.device = device;
      request.from.number = 77;
      request.from.mtu = 4096;
      requests.push_back(request);
    }
    return requests;
  }
  Result<wire::QueuePairGrant> Connect(const std::string& session,
                                       const std::vector<uint32_t>& devices = {0},
                                       bool some_may_fail = false) {
    return target_->Connect(session, Requests(devices), some_may_fail);
  }
  void ExpectPairs(size_t pairs) {
    EXPECT_EQ(target_->queue_pairs(), pairs);
    EXPECT_EQ(host_.live().queue_pairs, static_cast<int>(pairs));
  }

  gantry::testing::FakeFabric fabric_;
  gantry::testing::FakeVerbs host_{fabric_, {{.name = "first"}, {.name = "second"}}};
  const std::unique_ptr<RdmaDevices> devices_ = *RdmaDevices::Open({}, host_);
  std::optional<RdmaTarget> target_{std::in_place, *devices_, RdmaTarget::Limits{}};
};

TEST_F(RdmaTargetTest, GrantsWhatWasAskedForAndSaysForHowLong) {
  const auto grant = Connect("a", {0, 1, 1});
  ASSERT_TRUE(grant);
  ASSERT_EQ(grant->ends.size(), 3u);
  EXPECT_EQ(grant->lease_ms, devices_->options().lease.count());
  EXPECT_EQ(grant->ends[0].gid, devices_->at(0).gid.gid);
  EXPECT_EQ(grant->ends[2].gid, devices_->at(1).gid.gid);
  EXPECT_NE(grant->ends[1].number, grant->ends[2].number);  // each device numbers for itself
  ExpectPairs(3);
}

TEST_F(RdmaTargetTest, ASessionHasSoManyConnectionsAndAnotherOneItsOwn) {
  Make({.connections_per_session_max = 2, .queue_pairs_max = 100});
  const auto first = Connect("a");
  ASSERT_TRUE(first && Connect("a"));
  const auto refused = Connect("a");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(refused.error().hint.empty());
  EXPECT_TRUE(Connect("b"));
  target_->EndConnection("a", first->connection);
  EXPECT_TRUE(Connect("a"));
  ExpectPairs(3);
}

TEST_F(RdmaTargetTest, AllSessionsTogetherHaveSoManyQueuePairs) {
  Make({.connections_per_session_max = 10, .queue_pairs_max = 5});
  ASSERT_TRUE(Connect("a", {0, 0, 1}));
  const auto refused = Connect("b", {0, 0, 1});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  ExpectPairs(3);
  EXPECT_TRUE(Connect("b", {0, 1}));
  ExpectPairs(5);
  target_->End("a");
  ExpectPairs(2);
}

TEST_F(RdmaTargetTest, ADeviceThatIsNotThereMakesNothing) {
  const auto refused = Connect("a", {0, 1, 2});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotFound);
  EXPECT_NE(refused.error().message.find("device 2"), std::string::npos);
  ExpectPairs(0);
  EXPECT_FALSE(Connect("a", {UINT32_MAX}));
}

TEST_F(RdmaTargetTest, AFailureInTheMiddleMakesNothingAndTakesNoPlace) {
  Make({.connections_per_session_max = 1, .queue_pairs_max = 3});
  for (const auto call :
       {FakeCall::kCreateCompletionQueue, FakeCall::kCreateQueuePair, FakeCall::kConnect}) {
    host_.FailCall("second", call, 1, EIO);
    const auto failed = Connect("a", {0, 0, 1});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, ErrorCode::kDeviceError);
    ExpectPairs(0);
    EXPECT_EQ(host_.live().completion_queues, 0);
  }
  EXPECT_TRUE(Connect("a", {0, 0, 1}));
}

TEST_F(RdmaTargetTest, WithADeviceThatFailsTheOthersAreMadeWhereThatIsEnough) {
  Make({.connections_per_session_max = 4, .queue_pairs_max = 3});
  for (const auto call :
       {FakeCall::kCreateCompletionQueue, FakeCall::kCreateQueuePair, FakeCall::kConnect}) {
    host_.FailCalls("first", call, EIO);
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i) {
      const auto grant = Connect("a", {0, 1, 0}, true);
      ASSERT_TRUE(grant);
      ASSERT_EQ(grant->ends.size(), 3u);
      EXPECT_EQ(grant->ends[0].number, 0u);
      EXPECT_NE(grant->ends[1].number, 0u);
      EXPECT_EQ(grant->ends[2].number, 0u);
      ExpectPairs(1);
      EXPECT_EQ(host_.live().completion_queues, 1);
      EXPECT_FALSE(Connect("a", {0}, true)) << "it has no other";
      target_->EndConnection("a", grant->connection);
      ExpectPairs(0);
    }
    const std::string said = ::testing::internal::GetCapturedStderr();
    const size_t at = said.find("makes no queue pairs for peers");
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(said.find("makes no queue pairs for peers", at + 1), std::string::npos) << "once";
    host_.FailCalls("first", call, 0);
    const auto grant = Connect("a", {0, 1, 0}, true);
    ASSERT_TRUE(grant);
    for (const auto& end : grant->ends) EXPECT_NE(end.number, 0u);
    target_->End("a");
  }
}

TEST_F(RdmaTargetTest, ASessionEndsNoConnectionOfAnother) {
  const auto mine = Connect("a");
  const auto others = Connect("b");
  ASSERT_TRUE(mine && others);
  EXPECT_NE(mine->connection, others->connection);
  target_->EndConnection("a", others->connection);
  target_->EndConnection("", others->connection);
  target_->EndConnection("a", mine->connection + 100);
  target_->End("c");
  ExpectPairs(2);
  target_->EndConnection("a", mine->connection);
  target_->EndConnection("a", mine->connection);
  ExpectPairs(1);
  target_->End("b");
  target_->End("b");
  ExpectPairs(0);
}

TEST_F(RdmaTargetTest, ThreadsThatConnectAtOnceStayWithinTheLimits) {
  Make({.connections_per_session_max = 3, .queue_pairs_max = 10});
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> granted = 0;
    std::vector<std::jthread> threads;
    {
      // Until all of them are on their way, the devices answer none.
      const MutexLock lock(fabric_.mutex);
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] { granted += Connect("a", {0, 1}).has_value(); });
      }
      std::this_thread::sleep_for(milliseconds(50));
    }
    threads.clear();
    EXPECT_EQ(granted, 3);
    ExpectPairs(6);
    target_->End("a");
    ExpectPairs(0);
  }
}

// When End returns, what was there before is gone, whoever destroys it.
TEST_F(RdmaTargetTest, SessionsEndWhileOthersConnect) {
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (const char* session : {"a", "b"}) {
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([this, session, &stop] {
        while (!stop) {
          const auto grant = Connect(session, {0, 1});
          if (grant) target_->EndConnection(session, grant->connection);
        }
      });
    }
    threads.emplace_back([this, session, &stop] {
      while (!stop) target_->End(session);
    });
  }
  std::this_thread::sleep_for(milliseconds(200));
  stop = true;
  threads.clear();
  ExpectPairs(0);
  EXPECT_EQ(host_.live().completion_queues, 0);
}

}  // namespace
}  // namespace gantry::transport
