#include "sidecar/plan/block_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

namespace gantry::engine {
namespace {

using Ids = std::vector<uint32_t>;

// Stable sorting of what stands where: slow, and plainly right.
BlockOrder Reference(const Ids& ids) {
  BlockOrder order;
  order.positions.resize(ids.size());
  std::iota(order.positions.begin(), order.positions.end(), 0u);
  std::stable_sort(order.positions.begin(), order.positions.end(),
                   [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  for (const uint32_t position : order.positions) order.ids.push_back(ids[position]);
  order.distinct = std::set(ids.begin(), ids.end()).size() == ids.size();
  return order;
}

void Check(const Ids& ids, uint64_t blocks) {
  const BlockOrder expected = Reference(ids);
  const BlockOrder order = OrderBlocks(ids, blocks);
  ASSERT_EQ(order.ids, expected.ids) << ids.size() << " of " << blocks;
  if (order.positions.empty()) {
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  } else {
    ASSERT_EQ(order.positions, expected.positions) << ids.size() << " of " << blocks;
  }
  EXPECT_EQ(order.distinct, expected.distinct) << ids.size() << " of " << blocks;
  EXPECT_EQ(AreDistinct(ids, blocks), expected.distinct) << ids.size() << " of " << blocks;
}

class BlockOrderProperty : public ::testing::TestWithParam<int> {
 protected:
  // Distinct ids, one among each `blocks_per_id`, in any order.
  Ids Some(size_t count, uint64_t blocks_per_id) {
    Ids ids(count);
    for (size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<uint32_t>(i * blocks_per_id + random_() % blocks_per_id);
    }
    std::shuffle(ids.begin(), ids.end(), random_);
    return ids;
  }
  size_t Position(const Ids& ids) { return random_() % ids.size(); }

  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
};

// From few to many ids, dense to sparse: each way of ordering has its part of these.
constexpr size_t kCounts[] = {1, 2, 3, 63, 64, 65, 300, 4095, 5000};
constexpr uint64_t kBlocksPerId[] = {1, 2, 8, 9, 250, 300, 60'000};

TEST_P(BlockOrderProperty, IsWhatStableSortingSays) {
  for (const size_t count : kCounts) {
    for (const uint64_t blocks_per_id : kBlocksPerId) {
      Check(Some(count, blocks_per_id), count * blocks_per_id);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(BlockOrderProperty, ASingleRepetitionAnywhereIsSeen) {
  for (const size_t count : kCounts) {
    for (const uint64_t blocks_per_id : kBlocksPerId) {
      if (count == 1) continue;
      for (const bool sorted : {false, true}) {
        Ids ids = Some(count, blocks_per_id);
        if (sorted) std::sort(ids.begin(), ids.end());
        const size_t from = Position(ids);
        size_t to = sorted ? (from + 1) % count : Position(ids);
        if (to == from) to = (from + 1) % count;
        ids[to] = ids[from];
        ASSERT_FALSE(AreDistinct(ids, count * blocks_per_id));
        Check(ids, count * blocks_per_id);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(BlockOrderProperty, EqualIdsKeepTheirOrder) {
  for (const size_t count : kCounts) {
    for (const uint64_t blocks :
         {uint64_t{1}, uint64_t{5}, count, 20 * count, uint64_t{0xffffffff}}) {
      Ids ids(count);
      for (uint32_t& id : ids) id = static_cast<uint32_t>(random_() % blocks);
      Check(ids, blocks);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, BlockOrderProperty, ::testing::Range(1, 6));

TEST(BlockOrderTest, TheLargestIdsThatThereCanBe) {
  Check({0xfffffffe, 0, 0xfffffffd, 1}, 0xffffffff);
  Ids many(100);
  for (uint32_t i = 0; i < 100; ++i) many[i] = 0xfffffffe - i * 40'000'000;
  Check(many, 0xffffffff);
}

TEST(BlockOrderTest, IdsThatAreOutOfRangeAreNotNarrowed) {
  EXPECT_EQ(NarrowIds(std::vector<uint64_t>{3, 0, 7}, 8), (Ids{3, 0, 7}));
  for (const uint64_t beyond :
       {uint64_t{8}, uint64_t{1} << 32, (uint64_t{1} << 32) + 3, ~uint64_t{0}}) {
    for (size_t at = 0; at < 3; ++at) {
      std::vector<uint64_t> ids = {3, 0, 7};
      ids[at] = beyond;
      EXPECT_TRUE(NarrowIds(ids, 8).empty()) << beyond << " at " << at;
    }
  }
}

}  // namespace
}  // namespace gantry::engine
