// What is counted of each device: bytes and work requests that were done, what is in flight and how
// much may be, what had to be sent again, and the port; also after a device was lost.
#include "sidecar/transport/rdma/rdma_sample.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

class RdmaSampleTest : public FakeRdmaFixture {
 protected:
  static constexpr uint64_t kRequests = kArena / kSmallSlice;
  static constexpr uint64_t kPairs = 2;  // for each device

  metrics::RdmaSample Sample() {
    return SampleOf(*world_->devices_, world_->registrar_, world_->transport_, world_->target_);
  }
  metrics::RdmaDeviceSample Of(size_t device) { return Sample().devices.at(device); }
};

TEST_F(RdmaSampleTest, BytesAndWorkRequestsAreThoseOfTheirDeviceAndDirection) {
  Make(2, SmallSlices());
  EXPECT_EQ(Of(0).writes + Of(1).writes + Of(0).reads + Of(1).reads, 0u);
  EXPECT_EQ(Of(0).chunks, 1u);
  const auto write = WriteAll();
  ExpectAllMoved(*write);
  EXPECT_EQ(Of(0).writes + Of(1).writes, kRequests);
  EXPECT_EQ(Of(0).bytes_written + Of(1).bytes_written, kArena);
  EXPECT_EQ(Of(0).reads + Of(1).reads, 0u) << "a flush is none";
  const auto read = ReadAll();
  ExpectAllMoved(*read);
  for (size_t i = 0; i < 2; ++i) {
    const auto of = Of(i);
    EXPECT_EQ(of.device, "here" + std::to_string(i));
    EXPECT_TRUE(of.port_active);
    EXPECT_GT(of.reads, 0u);
    EXPECT_EQ(of.bytes_read, of.reads * kSmallSlice);
    EXPECT_EQ(of.bytes_written, of.writes * kSmallSlice);
    EXPECT_EQ(of.writes, here_->work(of.device).writes);
    EXPECT_EQ(of.retried, 0u);
  }
  EXPECT_EQ(Of(0).reads + Of(1).reads, kRequests);
}

TEST_F(RdmaSampleTest, WhatIsInFlightIsSeenWithItsLimitAndGoesBack) {
  Make(2, SmallSlices());
  EXPECT_EQ(Of(0).inflight_max, 0u) << "there is no connection yet";
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto write = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() == 2 * kPairs * kFewRequests; }));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Of(i).queue_pairs, kPairs);
    EXPECT_EQ(Of(i).inflight_max, kPairs * kFewRequests);
    EXPECT_EQ(Of(i).inflight, kPairs * kFewRequests) << "all that it takes";
  }
  EXPECT_EQ(Sample().initiator_connections, 1u);
  EXPECT_EQ(Sample().target_connections, 1u);
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*write);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Of(i).inflight, 0u);
  world_->peer_->Close(Error(ErrorCode::kPeerLost, "the session is over"));
  ASSERT_TRUE(PollUntil([&] { return Sample().initiator_connections == 0; }));
  EXPECT_TRUE(PollUntil([&] { return Of(0).queue_pairs == 0; }));
  EXPECT_EQ(Of(0).inflight_max, 0u);
  EXPECT_TRUE(PollUntil([&] { return Sample().target_connections == 0; }));
}

TEST_F(RdmaSampleTest, WhatIsLostIsCountedAtTheDeviceThatLostIt) {
  Make(2, SmallSlices());
  here_->FailWork("here1", 5, WorkStatus::kRetryExceeded);
  const auto write = WriteAll();
  ExpectAllMoved(*write);
  EXPECT_GT(Of(1).retried, 0u);
  EXPECT_EQ(Of(0).retried + Of(1).retried, write->progress().chunks_retried);
  EXPECT_EQ(Of(0).writes + Of(1).writes, kRequests) << "each counts once";
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Of(i).inflight, 0u);
}

TEST_F(RdmaSampleTest, APortThatGoesAndComesBackLeavesTheNumbersRight) {
  Make(2, SmallSlices());
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto write = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() == 2 * kPairs * kFewRequests; }));
  SetPort(0, false);
  EXPECT_FALSE(Of(0).port_active);
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectAllMoved(*write);
  EXPECT_GT(Of(0).retried + Of(1).retried, 0u);
  EXPECT_EQ(Of(0).inflight, 0u);
  // The last to let go of the old queue pairs is the thread that told the peer.
  EXPECT_TRUE(PollUntil([&] { return Of(0).inflight_max == 0; })) << "nothing is posted to it";
  EXPECT_EQ(Of(1).inflight_max, kPairs * kFewRequests);
  EXPECT_EQ(Of(0).bytes_written + Of(1).bytes_written, kArena);
  EXPECT_TRUE(Of(1).port_active);
  SetPort(0, true);
  EXPECT_TRUE(Of(0).port_active);
  const auto next = WriteAll();
  ExpectAllMoved(*next);
  EXPECT_TRUE(PollUntil([&] { return Of(0).inflight_max == kPairs * kFewRequests; }));
  EXPECT_EQ(Of(0).bytes_written + Of(1).bytes_written, 2 * kArena);
  EXPECT_TRUE(PollUntil([&] { return Sample().initiator_connections == 1; }));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(Of(i).inflight, 0u);
}

// They do not end by completions: nothing says of what a dead device had that it is over.
TEST_F(RdmaSampleTest, WhatIsDroppedWithItsQueuePairsIsInFlightNoMore) {
  Make(1, SmallSlices());
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto write = WriteAll();
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() == kPairs * kFewRequests; }));
  here_->FailCalls("here0", FakeCall::kFail, EIO);
  write->Abort();
  ASSERT_TRUE(world_->Finish(*write));
  EXPECT_EQ(Of(0).inflight, 0u);
  EXPECT_EQ(Of(0).retried, kPairs * kFewRequests);
  EXPECT_EQ(Of(0).writes, 0u);
  EXPECT_TRUE(PollUntil([&] { return Of(0).queue_pairs == 0; }));
}

}  // namespace
}  // namespace gantry::transport
