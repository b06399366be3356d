#include "lib/base/byte_range.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(ByteRangeTest, EndDoesNotWrap) {
  uint64_t end = 0;
  EXPECT_TRUE(EndOf(3, 4, &end));
  EXPECT_EQ(end, 7u);
  EXPECT_TRUE(EndOf(kMax, 0, &end));
  EXPECT_EQ(end, kMax);
  EXPECT_TRUE(EndOf(0, kMax, &end));
  EXPECT_FALSE(EndOf(1, kMax, &end));
  EXPECT_FALSE(EndOf(kMax, 1, &end));
  EXPECT_FALSE(EndOf(kMax, kMax, &end));
}

TEST(ByteRangeTest, FitsUpToTheEndAndNotBeyond) {
  EXPECT_TRUE(Fits(0, 10, 10));
  EXPECT_TRUE(Fits(9, 1, 10));
  EXPECT_TRUE(Fits(10, 0, 10));
  EXPECT_FALSE(Fits(10, 1, 10));
  EXPECT_FALSE(Fits(11, 0, 10));
  EXPECT_FALSE(Fits(2, kMax, 10));
  EXPECT_FALSE(Fits(kMax, 2, 10));
  EXPECT_TRUE(Fits(ByteRange{kMax - 1, 1}, kMax));
}

TEST(ByteRangeTest, ProductDoesNotWrap) {
  uint64_t product = 0;
  EXPECT_TRUE(Product(1u << 31, 1u << 31, &product));
  EXPECT_EQ(product, uint64_t{1} << 62);
  EXPECT_FALSE(Product(uint64_t{1} << 32, uint64_t{1} << 32, &product));
  EXPECT_TRUE(Product(kMax, 0, &product));
}

TEST(ByteRangeTest, OverlapNeedsAByteOfBoth) {
  EXPECT_TRUE(Overlaps({0, 10}, {9, 1}));
  EXPECT_FALSE(Overlaps({0, 10}, {10, 1}));
  EXPECT_FALSE(Overlaps({0, 10}, {5, 0}));
  EXPECT_TRUE(Overlaps({5, 1}, {0, 10}));
  EXPECT_FALSE(Overlaps({kMax - 1, 1}, {0, 1}));
}

}  // namespace
}  // namespace gantry
