#include "connectors/nixl/transfer/transfer_costs.h"

#include <gtest/gtest.h>

namespace gantry::nixl {
namespace {

TEST(TransferCosts, LearnFromWhatWasSeen) {
  TransferCosts costs;
  const auto assumed = costs.Of("one", 1 << 30);
  EXPECT_EQ(assumed.duration, assumed.margin);
  for (int i = 0; i < 50; ++i) {
    costs.Observe("one", 4096, microseconds(40));
    costs.Observe("one", 100'000'000, microseconds(10'040));
  }
  EXPECT_NEAR(static_cast<double>(costs.Of("one", 4096).duration.count()), 40, 5);
  EXPECT_NEAR(static_cast<double>(costs.Of("one", 200'000'000).duration.count()), 20'000, 500);
  EXPECT_EQ(costs.Of("two", 1 << 30).duration, assumed.duration);
}

}  // namespace
}  // namespace gantry::nixl
