#include "bench/bench_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "bench/bench_ceiling.h"

namespace gantry::bench {
namespace {

constexpr uint64_t kBlock = 4096, kBlocks = 64, kSeed = 5;
using Bytes = std::vector<std::byte>;

class BenchPattern : public ::testing::TestWithParam<BenchOptions::Order> {
 protected:
  Bytes source_ = Bytes(kBlock * kBlocks);
  Bytes destination_ = Bytes(kBlock * kBlocks);
  const BlockPairs pairs_ = MakePairs(kBlocks, GetParam(), kSeed);

  std::optional<std::string> Check() const {
    return FindMismatch(destination_, {pairs_.local, pairs_.remote, kBlock, kSeed});
  }
  void Copy(int threads) {
    FillPattern(source_, kSeed);
    FillCanary(destination_);
    CopyWithThreads({&pairs_, kBlock, destination_.data(), source_.data(), true}, threads);
  }
};

TEST_P(BenchPattern, EachSideNamesEveryBlockOnce) {
  for (const auto* side : {&pairs_.local, &pairs_.remote}) {
    const std::set<uint64_t> all(side->begin(), side->end());
    EXPECT_EQ(all.size(), kBlocks);
    EXPECT_EQ(*all.rbegin(), kBlocks - 1);
    EXPECT_EQ(std::is_sorted(side->begin(), side->end()),
              GetParam() == BenchOptions::Order::kSequential);
  }
}

TEST_P(BenchPattern, TheCeilingCopiesEveryBlock) {
  for (const int threads : {1, 3}) {
    Copy(threads);
    EXPECT_EQ(Check(), std::nullopt);
  }
}

TEST_P(BenchPattern, ASingleWrongByteIsFound) {
  for (const size_t position : {size_t{0}, kBlock * 17 + 5, destination_.size() - 1}) {
    Copy(1);
    destination_[position] ^= std::byte{1};
    const auto wrong = Check();
    ASSERT_TRUE(wrong);
    EXPECT_THAT(*wrong, ::testing::HasSubstr("block " + std::to_string(position / kBlock) + " "));
  }
}

TEST_P(BenchPattern, BlocksOfAnotherRunOrAnotherPlaceAreFound) {
  Copy(1);
  std::swap_ranges(destination_.begin(), destination_.begin() + kBlock,
                   destination_.begin() + kBlock);
  EXPECT_TRUE(Check());
  FillPattern(source_, kSeed + 1);
  CopyWithThreads({&pairs_, kBlock, destination_.data(), source_.data(), true}, 1);
  EXPECT_TRUE(Check());
}

TEST_P(BenchPattern, TheSameIdsOfEachBufferLieOneBufferFurtherOn) {
  constexpr uint64_t kBuffers = 4;
  const BlockPairs ids = MakePairs(kBlocks / kBuffers, GetParam(), kSeed);
  const BlockPairs all = InAllBuffers(ids, kBuffers);
  ASSERT_EQ(all.local.size(), kBlocks);
  ASSERT_EQ(all.remote.size(), kBlocks);
  for (uint64_t i = 0; i < kBlocks; ++i) {
    const uint64_t buffer = i / ids.local.size(), id = i % ids.local.size();
    EXPECT_EQ(all.local[i], buffer * ids.local.size() + ids.local[id]);
    EXPECT_EQ(all.remote[i], buffer * ids.local.size() + ids.remote[id]);
  }
}

// What the sidecar does with a view, and what it must not do.
TEST_P(BenchPattern, AWrongBufferOrAWrongIdOfAViewIsFound) {
  constexpr uint64_t kBuffers = 4, kEach = kBlocks / kBuffers;
  const BlockPairs ids = MakePairs(kEach, GetParam(), kSeed);
  const BlockPairs all = InAllBuffers(ids, kBuffers);
  const auto check_after = [&](uint64_t buffers_off, uint64_t ids_off) {
    FillPattern(source_, kSeed);
    FillCanary(destination_);
    for (uint64_t buffer = 0; buffer < kBuffers; ++buffer) {
      for (uint64_t i = 0; i < kEach; ++i) {
        const uint64_t to = buffer * kEach + ids.local[i];
        const uint64_t from =
            (buffer + buffers_off) % kBuffers * kEach + ids.remote[(i + ids_off) % kEach];
        std::copy_n(&source_[from * kBlock], kBlock, &destination_[to * kBlock]);
      }
    }
    return FindMismatch(destination_, {all.local, all.remote, kBlock, kSeed});
  };
  EXPECT_EQ(check_after(0, 0), std::nullopt);
  EXPECT_NE(check_after(1, 0), std::nullopt);
  EXPECT_NE(check_after(0, 1), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Orders, BenchPattern,
                         ::testing::Values(BenchOptions::Order::kRandom,
                                           BenchOptions::Order::kSequential));

TEST(BenchCanary, SeesOneByte) {
  Bytes bytes(100);
  FillCanary(bytes);
  EXPECT_TRUE(IsCanary(bytes));
  EXPECT_FALSE(IsCanary(bytes, std::byte{0x5A}));
  bytes[99] = std::byte{0};
  EXPECT_FALSE(IsCanary(bytes));
}

}  // namespace
}  // namespace gantry::bench
