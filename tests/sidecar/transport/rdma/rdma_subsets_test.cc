// Buffers that only some of the devices have, on either side: work goes through those that have
// both its ends, and nothing is ever posted without a key.
#include <gtest/gtest.h>

#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

constexpr size_t kAllDevices = 4;
constexpr uint64_t kPageSlice = 4096;

class RdmaSubsets : public FakeRdmaFixture {
 protected:
  // A buffer on some devices here, and the one that it is read from or written to.
  struct Pair {
    TestArena here{kArena, 3};
    TestArena there{kArena, 4};
    std::shared_ptr<const memory::MappedAllocation> local;
    RemoteAllocation remote;
    std::shared_ptr<const memory::NicMemory> nic_memory;
  };

  void SetUp() override {
    RdmaOptions options;
    options.slice_bytes = kPageSlice;
    options.work_requests = 8;
    Make(kAllDevices, options);
  }
  void TearDown() override {
    pairs_.clear();
    FakeRdmaFixture::TearDown();
  }
  Pair& MakePair(DeviceSet here, DeviceSet there) {
    auto pair = std::make_unique<Pair>();
    world_->on_here_ = here;
    world_->on_there_ = there;
    pair->local = world_->Local(pair->here);
    pair->nic_memory = world_->kept_.back();
    pair->remote = world_->Remote(world_->Describe(pair->there));
    pairs_.push_back(std::move(pair));
    return *pairs_.back();
  }
  std::unique_ptr<Operation> Start(const Pair& pair, wire::Operation direction) {
    return world_->transport_.Start(
        world_->WithNics(PlanOf(direction, pair.local, pair.remote, 0, 0, kArena)), 0, ++token_);
  }
  void ExpectMoves(const Pair& pair, wire::Operation direction = wire::Operation::kWrite) {
    const auto reaches = world_->transport_.CanGoThrough(*pair.nic_memory);
    ASSERT_TRUE(reaches) << reaches.error().message;
    ExpectMoved(pair, *Start(pair, direction));
  }
  void ExpectMoved(const Pair& pair, const Operation& operation) {
    ASSERT_TRUE(world_->Finish(operation));
    ASSERT_FALSE(operation.error()) << operation.error()->message;
    EXPECT_EQ(std::memcmp(pair.here.data(), pair.there.data(), kArena), 0);
  }
  static DeviceSet DevicesOf(const Pair& pair) {
    return dynamic_cast<const MemoryRegionSet&>(*pair.nic_memory).devices();
  }
  // Those that did work since the last call.
  DeviceSet Worked() {
    DeviceSet worked;
    for (size_t i = 0; i < kAllDevices; ++i) {
      const auto work = here_->work("here" + std::to_string(i));
      // Reads of eight bytes are flushes.
      if (work.bytes - seen_.at(i) > 8 * kAllDevices) worked.Add(i);
      seen_[i] = work.bytes;
    }
    return worked;
  }

  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<uint64_t> seen_ = std::vector<uint64_t>(kAllDevices);
};

TEST_F(RdmaSubsets, ABufferIsRegisteredOnItsOwnDevicesAlone) {
  const std::vector<size_t> before = {world_->registrar_.chunks(0), world_->registrar_.chunks(1),
                                      world_->registrar_.chunks(2), world_->registrar_.chunks(3)};
  const int calls = here_->calls("here0", FakeCall::kRegister);
  const Pair& pair = MakePair({1, 3}, {0});
  EXPECT_EQ(here_->calls("here0", FakeCall::kRegister), calls);
  for (const size_t device : {0, 1, 2, 3}) {
    EXPECT_EQ(world_->registrar_.chunks(device), before[device] + device % 2) << device;
  }
  EXPECT_EQ(DevicesOf(pair), (DeviceSet{1, 3}));
}

TEST_F(RdmaSubsets, OnlyLanesWhoseBothEndsHaveKeysAreUsed) {
  ExpectMoves(MakePair(DeviceSet::All(), DeviceSet::All()));
  EXPECT_EQ(Worked(), (DeviceSet{0, 1, 2, 3}));
  ExpectMoves(MakePair({0, 1}, {1, 2}));
  EXPECT_EQ(Worked(), DeviceSet{1});
  ExpectMoves(MakePair({0, 1, 2, 3}, {2, 3}), wire::Operation::kRead);
  EXPECT_EQ(Worked(), (DeviceSet{2, 3}));
  EXPECT_EQ(world_->transport_.connections(), 1u);
  EXPECT_EQ(QueuePairs(), 2 * 2 * static_cast<int>(kAllDevices)) << "as it was made first";
  EXPECT_TRUE(world_->errors_.empty());
}

// GPU 0 here, GPU 5 there: their devices do not have the same place.
TEST_F(RdmaSubsets, WhereTheDevicesDoNotMeetLanesCross) {
  const Pair& straight = MakePair({1}, {1});
  ExpectMoves(straight);
  (void)Worked();
  const Pair& crossing = MakePair({0}, {2});
  ExpectMoves(crossing);
  EXPECT_EQ(Worked(), DeviceSet{0});
  EXPECT_EQ(QueuePairs(), 2 * 2 * static_cast<int>(kAllDevices + 1));
  ExpectMoves(crossing, wire::Operation::kRead);
  ExpectMoves(straight);
  EXPECT_EQ(Worked(), (DeviceSet{0, 1}));
  ExpectMoves(MakePair({0, 1}, {2, 3}), wire::Operation::kRead);
  EXPECT_EQ(Worked(), DeviceSet{0}) << "it fits what is there already";
  ExpectMoves(MakePair({2, 3}, {0, 1}));
  EXPECT_EQ(Worked(), (DeviceSet{2, 3})) << "both of both";
  EXPECT_EQ(world_->target_.connections(), 1u);
  EXPECT_TRUE(world_->errors_.empty());
}

TEST_F(RdmaSubsets, WhatWaitsForItsOwnDevicesHoldsUpNoOther) {
  constexpr size_t kFull = 2 * 8;  // of two queue pairs
  const Pair& one = MakePair({0}, {0});
  const Pair& other = MakePair({1}, {1});
  ExpectMoves(one);
  fabric_.SetProgress(FakeFabric::Progress::kByStep);
  const auto first = Start(one, wire::Operation::kWrite);
  ASSERT_TRUE(PollUntil([&] { return fabric_.pending() == kFull; }));
  const auto second = Start(other, wire::Operation::kWrite);
  EXPECT_TRUE(PollUntil([&] { return fabric_.pending() == 2 * kFull; }, milliseconds(1'000)));
  fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
  ExpectMoved(one, *first);
  ExpectMoved(other, *second);
}

TEST_F(RdmaSubsets, WhatIsInFlightEndsWellBeforeLanesCross) {
  const Pair& straight = MakePair({1}, {1});
  const Pair& crossing = MakePair({0}, {2});
  const auto first = Start(straight, wire::Operation::kWrite);
  ASSERT_TRUE(PollUntil([&] { return first->progress().chunks > 0; }));
  const auto second = Start(crossing, wire::Operation::kWrite);
  ExpectMoved(crossing, *second);
  ExpectMoved(straight, *first);
  EXPECT_EQ(first->progress().chunks_retried + second->progress().chunks_retried, 0u);
}

TEST_F(RdmaSubsets, BuffersOfOneTransferHaveDevicesOfTheirOwn) {
  const Pair& one = MakePair({0}, {0});
  const Pair& other = MakePair({3}, {2});
  auto plan = PlanOf(wire::Operation::kWrite, one.local, one.remote, 0, 0, kArena);
  plan->local.push_back(other.local);
  plan->remote.push_back(other.remote);
  MoveSegment segment;
  segment.local_allocation = 1;
  segment.remote_allocation = 1;
  segment.length = kArena;
  plan->segments.push_back(segment);
  plan->bytes = 2 * kArena;
  const auto operation = world_->transport_.Start(world_->WithNics(plan), 0, ++token_);
  ExpectMoved(one, *operation);
  ExpectMoved(other, *operation);
  EXPECT_EQ(Worked(), (DeviceSet{0, 3}));
}

TEST_F(RdmaSubsets, WithItsDevicesDownABufferIsNotReachedAndOthersAre) {
  const Pair& lost = MakePair({1}, {1});
  const Pair& other = MakePair({0, 2}, {1, 2});
  ExpectMoves(lost);
  SetPort(1, false);
  const Status reaches = world_->transport_.CanGoThrough(*lost.nic_memory);
  ASSERT_FALSE(reaches);
  EXPECT_EQ(reaches.error().code, ErrorCode::kPathUnavailable);
  EXPECT_NE(reaches.error().message.find("active port: here1"), std::string::npos)
      << reaches.error().message;
  ExpectMoves(other);
  SetPort(1, true);
  ExpectMoves(lost);
}

TEST_F(RdmaSubsets, ATransferThatLosesTheDevicesOfItsBufferFailsAndSaysWhich) {
  const Pair& lost = MakePair({1}, {1});
  const auto operation = Start(lost, wire::Operation::kWrite);
  ASSERT_TRUE(PollUntil([&] { return operation->progress().chunks > 0; }));
  ASSERT_FALSE(operation->finished());
  SetPort(1, false);
  ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPathUnavailable);
  EXPECT_NE(operation->error()->message.find("here1"), std::string::npos);
  ExpectMoves(MakePair({2}, {2}));
}

TEST_F(RdmaSubsets, LanesThatDoNotConnectFailTheirTransferAndLeaveTheOthers) {
  const Pair& straight = MakePair({1}, {1});
  const Pair& crossing = MakePair({0}, {2});
  ExpectMoves(straight);
  // Two queue pairs of the device are for the lane to its own place. A third is never to be had.
  ASSERT_EQ(here_->calls("here0", FakeCall::kCreateQueuePair), 2);
  for (int i = 1; i <= 10; ++i) here_->FailCall("here0", FakeCall::kCreateQueuePair, 3 * i, EIO);
  const auto operation = Start(crossing, wire::Operation::kWrite);
  ASSERT_TRUE(world_->Finish(*operation, milliseconds(5'000)));
  EXPECT_TRUE(operation->error());
  ASSERT_TRUE(PollUntil(
      [&] { return world_->transport_.CanReach(*straight.local, straight.remote).has_value(); }));
  ExpectMoves(straight);
}

TEST_F(RdmaSubsets, ADeviceOfThePeerThatFailsIsLeftOutOfWhatLeadsToItAlone) {
  const Pair& straight = MakePair({0}, {0});
  const Pair& crossing = MakePair({0}, {2});
  there_->FailCalls("there2", FakeCall::kCreateQueuePair, EIO);
  const auto waiting = Start(crossing, wire::Operation::kWrite);
  while (!waiting->finished()) ExpectMoves(straight);
  ASSERT_TRUE(waiting->error());
  EXPECT_NE(waiting->error()->message.find("there2 makes no queue pairs"), std::string::npos)
      << waiting->error()->message;
  // Three times for the crossing; the lanes of the devices' own places were there before.
  const int made = here_->calls("here0", FakeCall::kCreateCompletionQueue);
  EXPECT_LE(made, 3 + 4);
  for (const TimePoint until = Clock::now() + milliseconds(400); Clock::now() < until;) {
    ExpectMoves(straight);
    const auto refused = Start(crossing, wire::Operation::kRead);
    ASSERT_TRUE(world_->Finish(*refused, milliseconds(100)));
    EXPECT_TRUE(refused->error());
  }
  EXPECT_EQ(here_->calls("here0", FakeCall::kCreateCompletionQueue), made) << "not for ever";
  there_->FailCalls("there2", FakeCall::kCreateQueuePair, 0);
  std::unique_ptr<Operation> again;
  for (int i = 0; i < 100 && (again == nullptr || again->error()); ++i) {
    PollFor(milliseconds(25));
    again = Start(crossing, wire::Operation::kWrite);
    ASSERT_TRUE(world_->Finish(*again));
  }
  ExpectMoved(crossing, *again);
}

TEST_F(RdmaSubsets, WhatHasNoOtherDeviceWaitsForOneThatWasLeftOut) {
  const Pair& own = MakePair({0}, {0});
  const Pair& other = MakePair({1}, {1});
  here_->FailCall("here0", FakeCall::kCreateQueuePair, 1, EIO);
  const auto waiting = Start(own, wire::Operation::kWrite);
  ExpectMoves(other);
  EXPECT_FALSE(waiting->finished());
  ExpectMoved(own, *waiting);
  EXPECT_EQ(world_->errors_.size(), 1u);
}

// With so many queue pairs for each device there are none left to cross.
TEST_F(RdmaSubsets, WithoutQueuePairsLeftToCrossItIsSaidWhatToDo) {
  TearDown();
  RdmaOptions options;
  options.queue_pairs = wire::kQueuePairsMax / static_cast<int>(kAllDevices);
  options.work_requests = 1;
  Make(kAllDevices, options);
  const Pair& crossing = MakePair({0}, {2});
  const auto operation = Start(crossing, wire::Operation::kWrite);
  ASSERT_TRUE(world_->Finish(*operation));
  ASSERT_TRUE(operation->error());
  EXPECT_EQ(operation->error()->code, ErrorCode::kPathUnavailable);
  EXPECT_NE(operation->error()->hint.find("--rdma-queue-pairs"), std::string::npos);
  ExpectMoves(MakePair({0}, {0}));
}

// Any buffers, any ports: what is posted has keys, as whatever has none fails.
class RdmaManySubsets : public RdmaSubsets, public ::testing::WithParamInterface<uint64_t> {};

TEST_P(RdmaManySubsets, EveryByteArrivesThroughADeviceOfItsBuffer) {
  std::mt19937_64 random(GetParam());
  const auto some = [&random] {
    DeviceSet set{random() % kAllDevices};
    for (size_t i = 0; i < kAllDevices; ++i) {
      if (random() % 3 == 0) set.Add(i);
    }
    return set;
  };
  fabric_.Scramble(GetParam());
  std::vector<std::unique_ptr<Operation>> operations;
  DeviceSet allowed;
  for (int i = 0; i < 6; ++i) {
    const DeviceSet here = some();
    allowed = allowed | here;
    const Pair& pair = MakePair(here, some());
    operations.push_back(
        Start(pair, random() % 2 == 0 ? wire::Operation::kWrite : wire::Operation::kRead));
  }
  for (size_t i = 0; i < operations.size(); ++i) ExpectMoved(*pairs_[i], *operations[i]);
  const DeviceSet worked = Worked();
  EXPECT_EQ(worked & allowed, worked);
  EXPECT_TRUE(world_->errors_.empty()) << world_->errors_.front().message;
}
INSTANTIATE_TEST_SUITE_P(Seeds, RdmaManySubsets, ::testing::Range<uint64_t>(1, 31));

}  // namespace
}  // namespace gantry::transport
