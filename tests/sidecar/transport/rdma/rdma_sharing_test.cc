// Many transfers at once: who goes first, and that every byte arrives where it belongs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/sidecar/transport/rdma/fake_rdma_fixture.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kSlice = 1024;

class RdmaSharing : public FakeRdmaFixture {
 protected:
  static constexpr size_t kRoom = 4;  // work requests in flight

  void SetUp() override {
    RdmaOptions options;
    options.slice_bytes = kSlice;
    options.queue_pairs = 1;
    options.work_requests = kRoom;
    Make(1, options);
    world_->MoveSomething();
    fabric_.SetProgress(FakeFabric::Progress::kByStep);
  }
  // The device carries out one, and the driver looks.
  void Step() {
    ASSERT_TRUE(PollUntil([&] { return fabric_.pending() == kRoom; }));
    for (size_t i = 0; i < kRoom; ++i) EXPECT_TRUE(fabric_.Step());
  }
  void FinishAll(const std::vector<std::unique_ptr<Operation>>& operations) {
    fabric_.SetProgress(FakeFabric::Progress::kOnPoll);
    for (const auto& operation : operations) {
      ASSERT_TRUE(world_->Finish(*operation));
      EXPECT_FALSE(operation->error());
    }
  }
  static uint64_t ChunksOf(const std::vector<std::unique_ptr<Operation>>& operations) {
    uint64_t chunks = 0;
    for (const auto& operation : operations) chunks += operation->progress().chunks;
    return chunks;
  }
};

TEST_F(RdmaSharing, OneOfAHigherPriorityOvertakesAllThatWait) {
  std::vector<std::unique_ptr<Operation>> low;
  for (int i = 0; i < 4; ++i) low.push_back(WriteAll());
  for (int i = 0; i < 3; ++i) Step();
  std::vector<std::unique_ptr<Operation>> high;
  const uint64_t before = ChunksOf(low);
  high.push_back(Start(wire::Operation::kRead, 0, 0, 32 * kSlice, 1));
  while (!high[0]->finished()) Step();
  // What was on its way already.
  EXPECT_LE(ChunksOf(low) - before, 2 * kRoom);
  FinishAll(low);
}

TEST_F(RdmaSharing, EqualOnesShare) {
  for (int count = 2; count <= 5; ++count) {
    SCOPED_TRACE(count);
    std::vector<std::unique_ptr<Operation>> equal;
    for (int i = 0; i < count; ++i) equal.push_back(WriteAll());
    for (int i = 0; i < 40; ++i) Step();
    std::vector<uint64_t> chunks;
    for (const auto& operation : equal) chunks.push_back(operation->progress().chunks);
    const auto [least, most] = std::minmax_element(chunks.begin(), chunks.end());
    EXPECT_GE(*most, 30u);
    EXPECT_LE(*most - *least, 4 * kRoom);
    FinishAll(equal);
    fabric_.SetProgress(FakeFabric::Progress::kByStep);
  }
}

// Sixteen transfers in fields of their own, in any order that devices may choose.
class RdmaManyAtOnce : public FakeRdmaFixture, public ::testing::WithParamInterface<uint64_t> {
 protected:
  static constexpr int kTransfers = 16;
  static constexpr uint64_t kField = kArena / kTransfers;
};

TEST_P(RdmaManyAtOnce, EveryByteIsRight) {
  std::mt19937_64 random(GetParam());
  const auto below = [&random](uint64_t limit) { return random() % limit; };
  RdmaOptions options;
  options.chunk_bytes = (1 + below(8)) * 4096;
  options.slice_bytes = 1 + below(20'000);
  options.queue_pairs = static_cast<int>(1 + below(3));
  options.work_requests = static_cast<uint32_t>(1 + below(20));
  options.relaxed_ordering = below(2) == 0;
  Make(3, options);
  fabric_.Scramble(GetParam());
  std::vector<uint8_t> here(local_.data(), local_.data() + kArena);
  std::vector<uint8_t> there(there_memory_.data(), there_memory_.data() + kArena);
  if (below(2) == 0) here_->FailWork("here1", 1 + below(20), WorkStatus::kRetryExceeded);
  std::vector<std::unique_ptr<Operation>> operations;
  for (uint64_t i = 0; i < kTransfers; ++i) {
    const uint64_t length = 1 + below(below(2) == 0 ? kField : 100);
    const uint64_t from = i * kField + below(kField - length + 1);
    const uint64_t to = i * kField + below(kField - length + 1);
    const bool writes = below(2) == 0;
    const auto direction = writes ? wire::Operation::kWrite : wire::Operation::kRead;
    operations.push_back(Start(direction, writes ? from : to, writes ? to : from, length,
                               static_cast<int>(below(3))));
    const std::vector<uint8_t>& source = writes ? here : there;
    std::vector<uint8_t>& target = writes ? there : here;
    std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), length,
                target.begin() + static_cast<ptrdiff_t>(to));
  }
  for (const auto& operation : operations) {
    ASSERT_TRUE(world_->Finish(*operation));
    EXPECT_FALSE(operation->error()) << operation->error()->message;
  }
  fabric_.ShowLateWrites();
  EXPECT_EQ(std::memcmp(here.data(), local_.data(), kArena), 0);
  EXPECT_EQ(std::memcmp(there.data(), there_memory_.data(), kArena), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RdmaManyAtOnce, ::testing::Range<uint64_t>(1, 41));

}  // namespace
}  // namespace gantry::transport
