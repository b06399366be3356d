#include "connectors/nixl/transfer/block_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/connectors/nixl/descriptor_lists.h"

namespace gantry::nixl {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr uint64_t kBlock = 1024;
constexpr uint64_t kBytes = 64 * kBlock;

TEST(BlockPlan, HasOneGroupForLayersThatMoveTheSameBlocks) {
  DescriptorLists lists({"a", "b", "c"}, kBytes);
  for (size_t layer = 0; layer < 3; ++layer) {
    for (uint64_t i = 0; i < 20; ++i)
      lists.Add(layer, i * kBlock, layer, (40 - i) * kBlock, kBlock);
  }
  const auto plan = BlocksOf(*lists.Ranges());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->block_bytes, kBlock);
  ASSERT_THAT(plan->groups, SizeIs(1));
  EXPECT_THAT(plan->groups[0].remote, ElementsAre("a", "b", "c"));
  EXPECT_THAT(plan->groups[0].local_blocks, SizeIs(20));
  EXPECT_EQ(plan->groups[0].remote_blocks[3], 37);
}

TEST(BlockPlan, HasAGroupForEachListOfBlocks) {
  DescriptorLists lists({"a", "b", "c"}, kBytes);
  for (uint64_t i = 0; i < 20; ++i) {  // the pairs take turns
    lists.Add(0, i * kBlock, 1, i * kBlock, kBlock);
    lists.Add(1, i * kBlock, 2, (i + 1) * kBlock, kBlock);
    lists.Add(2, i * kBlock, 0, i * kBlock, kBlock);
  }
  const auto plan = BlocksOf(*lists.Ranges());
  ASSERT_TRUE(plan);
  ASSERT_THAT(plan->groups, SizeIs(2));
  EXPECT_THAT(plan->groups[0].remote, ElementsAre("b", "a"));
  EXPECT_THAT(plan->groups[1].remote, ElementsAre("c"));
}

TEST(BlockPlan, HasOneKeyForOneView) {
  const auto plan_of = [](uint64_t first, size_t there) {
    DescriptorLists lists({"a", "b"}, kBytes);
    for (uint64_t i = 0; i < 32; ++i) lists.Add(0, (first + i) * kBlock, there, i * kBlock, kBlock);
    return *BlocksOf(*lists.Ranges());
  };
  EXPECT_EQ(plan_of(0, 0).key, plan_of(7, 0).key);
  EXPECT_NE(plan_of(0, 0).key, plan_of(0, 1).key);
}

TEST(BlockPlan, IsThereForManyDescriptorsOfOneLengthAtItsMultiplesAlone) {
  const auto is_plan = [](uint64_t blocks, uint64_t bytes, uint64_t shift, uint64_t last) {
    DescriptorLists lists({"a"}, kBytes);
    for (uint64_t i = 0; i + 1 < blocks; ++i) lists.Add(0, i * bytes + shift, 0, i * bytes, bytes);
    lists.Add(0, (blocks - 1) * bytes + shift, 0, (blocks - 1) * bytes, last);
    return BlocksOf(*lists.Ranges()).has_value();
  };
  EXPECT_TRUE(is_plan(40, kBlock, 0, kBlock));
  EXPECT_TRUE(is_plan(40, kBlock, kBlock, kBlock));
  EXPECT_FALSE(is_plan(40, kBlock, 8, kBlock));
  EXPECT_FALSE(is_plan(40, kBlock, 0, kBlock / 2));
  EXPECT_FALSE(is_plan(31, kBlock, 0, kBlock));
  EXPECT_FALSE(is_plan(40, 256, 0, 256));
}

}  // namespace
}  // namespace gantry::nixl
