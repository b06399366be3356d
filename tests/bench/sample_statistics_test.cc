#include "bench/sample_statistics.h"

#include <gtest/gtest.h>

namespace gantry::bench {
namespace {

TEST(Samples, GiveTheValueThatAFractionDoesNotExceed) {
  Samples samples;
  EXPECT_EQ(samples.Median(), 0);
  for (int i = 100; i >= 1; --i) samples.Add(i);
  EXPECT_EQ(samples.Least(), 1);
  EXPECT_EQ(samples.Median(), 50);
  EXPECT_EQ(samples.Percentile(0.9), 90);
  EXPECT_EQ(samples.Percentile(0.999), 100);
  EXPECT_EQ(samples.Percentile(1), 100);
  EXPECT_DOUBLE_EQ(samples.Mean(), 50.5);
}

}  // namespace
}  // namespace gantry::bench
