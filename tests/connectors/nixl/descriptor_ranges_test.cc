#include "connectors/nixl/transfer/descriptor_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/connectors/nixl/descriptor_lists.h"

namespace gantry::nixl {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(DescriptorRanges, AreOffsetsInTheirRegistrations) {
  DescriptorLists lists({"a", "b"}, 4096);
  lists.Add(0, 0, 1, 100, 10);
  lists.Add(1, 4086, 0, 0, 10);
  const auto ranges = lists.Ranges();
  ASSERT_TRUE(ranges);
  EXPECT_THAT(ranges->remote, ElementsAre("b", "a"));
  EXPECT_THAT(ranges->local, SizeIs(2));
  ASSERT_THAT(ranges->ranges, SizeIs(2));
  EXPECT_EQ(ranges->ranges[0].remote_offset, 100);
  EXPECT_EQ(ranges->ranges[1].local_index, 1);
  EXPECT_EQ(ranges->ranges[1].local_offset, 4086);
  EXPECT_EQ(ranges->bytes, 20);
}

TEST(DescriptorRanges, OutsideOfTheirRegistrationAreRefused) {
  for (const uint64_t offset : {uint64_t{4090}, uint64_t{5000}, UINT64_MAX - 100}) {
    DescriptorLists lists({"a"}, 4096);
    lists.Add(0, offset, 0, 0, 10);
    EXPECT_EQ(lists.Ranges().error().code, ErrorCode::kOutOfRange) << offset;
    DescriptorLists remote({"a"}, 4096);
    remote.Add(0, 0, 0, offset, 10);
    EXPECT_EQ(remote.Ranges().error().code, ErrorCode::kOutOfRange) << offset;
  }
}

TEST(DescriptorRanges, OfDifferentLengthsOrAgentsAreRefused) {
  DescriptorLists lists({"a"}, 4096);
  lists.Add(0, 0, 0, 0, 10);
  EXPECT_FALSE(RangesOf(lists.local(), lists.remote(), "another agent"));
  lists.remote().descs[0].bytes = 11;
  EXPECT_FALSE(lists.Ranges());
  lists.remote().descs.clear();
  EXPECT_FALSE(lists.Ranges());
}

TEST(DescriptorRanges, AreMergedWhereBothSidesContinue) {
  DescriptorLists lists({"a", "b"}, 4096);
  lists.Add(0, 0, 0, 0, 10);
  lists.Add(0, 10, 0, 10, 10);
  lists.Add(0, 20, 0, 40, 10);  // not on the other side
  lists.Add(0, 30, 1, 50, 10);  // another buffer
  lists.Add(0, 40, 1, 60, 0);   // nothing
  const auto ranges = lists.Ranges();
  ASSERT_TRUE(ranges);
  EXPECT_THAT(ranges->ranges, SizeIs(4));
  const auto merged = Merged(ranges->ranges);
  ASSERT_THAT(merged, SizeIs(3));
  EXPECT_EQ(merged[0].bytes, 20);
}

}  // namespace
}  // namespace gantry::nixl
