// Which fetches a revocation fails, and when it can be acknowledged.
#include "sidecar/peer/link/revocation_tracker.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gantry::peer {
namespace {

using Ids = std::vector<uint64_t>;

constexpr uint64_t kSession = 3;

class RevocationTrackerTest : public ::testing::Test {
 protected:
  void SetUp() override { tracker_.BeginSession(kSession); }

  static TimePoint In(int time_ms) { return Clock::now() + milliseconds(time_ms); }
  // The number of a revocation is 100 times the buffer's generation.
  void Revoke(uint64_t generation, uint64_t session = kSession) {
    tracker_.Add(session, {100 * generation, "b", generation, 10'000, 20'000, false});
  }
  Status Check(uint64_t generation, uint64_t session = kSession) {
    wire::PeerBuffer buffer;
    buffer.generation = generation;
    revoked_ = 0;
    return tracker_.Check(session, {buffer}, &revoked_);
  }
  Status Publish(const std::vector<uint64_t>& generations, uint64_t session = kSession) {
    std::vector<engine::RemoteBuffer> buffers;
    for (const uint64_t generation : generations) {
      engine::RemoteBuffer buffer;
      buffer.reference = Named(generation);
      buffer.mapped = true;
      buffers.push_back(std::move(buffer));
    }
    revoked_ = 0;
    return tracker_.Publish(session, std::move(buffers), nullptr, &revoked_);
  }
  std::vector<RemoteBufferCache::Handle> Get(uint64_t generation) {
    std::vector<RemoteBufferCache::Handle> handles;
    if (!cache_.Acquire({Named(generation)}, engine::RemoteUse::kMove, &handles).empty()) return {};
    return handles;
  }
  static wire::BufferReference Named(uint64_t generation) {
    wire::BufferReference reference;
    reference.workload = "w";
    reference.buffer = "b" + std::to_string(generation);
    reference.generation = generation;
    return reference;
  }
  void Unmap() { cache_.TakeDue(Clock::now()).unused.clear(); }

  RemoteBufferCache cache_{[] {}};
  RevocationTracker tracker_{"prefill", cache_};
  uint64_t revoked_ = 0;
};

TEST_F(RevocationTrackerTest, ARevokedBufferIsNotPublished) {
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  ASSERT_TRUE(Check(1));
  Revoke(1);
  EXPECT_EQ(Check(1).error().code, ErrorCode::kDraining);
  EXPECT_EQ(revoked_, 1u);
  EXPECT_EQ(Publish({2, 1}).error().code, ErrorCode::kDraining);
  EXPECT_EQ(revoked_, 1u);
  EXPECT_EQ(cache_.size(), 0u) << "all or none";
  EXPECT_TRUE(Publish({2}));
  EXPECT_EQ(Get(2).size(), 1u);
}

TEST_F(RevocationTrackerTest, ARevocationRetiresTheBufferAndWaitsUntilItIsUnmapped) {
  ASSERT_TRUE(Publish({1, 2}));
  auto handles = Get(1);
  Revoke(1);
  EXPECT_TRUE(Get(1).empty());
  EXPECT_FALSE(Get(2).empty());
  Unmap();
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{}) << "it is in use";
  handles.clear();
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{}) << "it is still mapped";
  Unmap();
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{100});
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{100}) << "the owner has not accepted it";
  tracker_.SetAcknowledged({100});
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{});
  EXPECT_TRUE(Check(1)) << "the buffer may come back";
}

TEST_F(RevocationTrackerTest, TheFetchInFlightDelaysTheAcknowledgement) {
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  Revoke(1);
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{}) << "the fetch may have mapped it";
  tracker_.EndFetch();
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{100});
}

TEST_F(RevocationTrackerTest, ALaterFetchDoesNotDelayTheAcknowledgement) {
  Revoke(1);
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{100});
}

// The owner may have described the buffer to that fetch before it forgot it.
TEST_F(RevocationTrackerTest, AnAcknowledgedRevocationFailsTheFetchThatWasInFlight) {
  Revoke(1);
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  tracker_.SetAcknowledged(tracker_.TakeUnmapped());
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{});
  EXPECT_EQ(Publish({1}).error().code, ErrorCode::kDraining);
  tracker_.EndFetch();
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{});
  EXPECT_TRUE(Publish({1})) << "another fetch asked after the acknowledgement";
}

TEST_F(RevocationTrackerTest, AnEndedSessionPublishesNothingAndLeavesNothing) {
  ASSERT_TRUE(Publish({1}));
  Revoke(2);
  tracker_.EndSession(Error(ErrorCode::kPeerLost, "gone"));
  EXPECT_TRUE(Get(1).empty());
  EXPECT_EQ(cache_.retired(), 1u);
  EXPECT_EQ(Publish({3}).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(revoked_, 0u);
  EXPECT_EQ(tracker_.TakeUnmapped(), Ids{});
  tracker_.BeginSession(kSession + 1);
  EXPECT_EQ(Publish({3}).error().code, ErrorCode::kCancelled) << "it is of the old session";
  Revoke(3);
  EXPECT_TRUE(Publish({3}, kSession + 1)) << "the revocation is of the old session";
}

TEST_F(RevocationTrackerTest, FetchesTakeTurns) {
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  EXPECT_TRUE(tracker_.fetching());
  EXPECT_EQ(tracker_.BeginFetch(In(20)).error().code, ErrorCode::kDeadlineExceeded);
  auto second = std::async(std::launch::async, [this] { return tracker_.BeginFetch(In(10'000)); });
  EXPECT_EQ(second.wait_for(milliseconds(20)), std::future_status::timeout);
  tracker_.EndFetch();
  EXPECT_TRUE(second.get());
  tracker_.EndFetch();
  EXPECT_FALSE(tracker_.fetching());
}

TEST_F(RevocationTrackerTest, AnAcknowledgementIsWaitedFor) {
  Revoke(1);
  EXPECT_TRUE(tracker_.AwaitAcknowledged(2, In(0)));
  EXPECT_FALSE(tracker_.AwaitAcknowledged(1, In(20)));
  auto waits =
      std::async(std::launch::async, [this] { return tracker_.AwaitAcknowledged(1, In(10'000)); });
  EXPECT_EQ(waits.wait_for(milliseconds(20)), std::future_status::timeout);
  tracker_.SetAcknowledged(tracker_.TakeUnmapped());
  EXPECT_TRUE(waits.get());
}

TEST_F(RevocationTrackerTest, StopWaitingEndsAllWaits) {
  Revoke(1);
  ASSERT_TRUE(tracker_.BeginFetch(In(0)));
  auto turn = std::async(std::launch::async, [this] { return tracker_.BeginFetch(In(10'000)); });
  auto acknowledged =
      std::async(std::launch::async, [this] { return tracker_.AwaitAcknowledged(1, In(10'000)); });
  tracker_.StopWaiting();
  EXPECT_EQ(turn.get().error().code, ErrorCode::kShuttingDown);
  EXPECT_FALSE(acknowledged.get());
  tracker_.EndFetch();
  EXPECT_EQ(tracker_.BeginFetch(In(0)).error().code, ErrorCode::kShuttingDown);
}

}  // namespace
}  // namespace gantry::peer
