#include "lib/base/bounded_spin.h"

#include <gtest/gtest.h>

#include "tests/lib/base/thread_time.h"

namespace gantry {
namespace {

using testing::ThreadProcessorSeconds;

TEST(BoundedSpin, EndsWhenWhatItWaitsForIsThere) {
  const BoundedSpin spin{milliseconds(20'000)};
  int looks = 0;
  EXPECT_TRUE(spin.Until([&] { return ++looks == 3; }));
  EXPECT_EQ(looks, 3);
}

TEST(BoundedSpin, EndsAtTheDeadline) {
  const BoundedSpin spin{milliseconds(20'000)};
  const TimePoint start = Clock::now();
  EXPECT_FALSE(spin.Until([] { return false; }, start + milliseconds(5)));
  EXPECT_GE(Clock::now() - start, milliseconds(5));
  EXPECT_LT(Clock::now() - start, milliseconds(5'000));
}

TEST(BoundedSpin, LooksOnceAlsoWithoutTime) {
  int looks = 0;
  EXPECT_FALSE(BoundedSpin(nanoseconds(0)).Until([&] { return ++looks < 0; }));
  EXPECT_EQ(looks, 1);
  const BoundedSpin spin{milliseconds(20'000)};
  EXPECT_TRUE(spin.Until([] { return true; }, Clock::now() - milliseconds(1)));
}

TEST(BoundedSpin, InVainTakesItsLimitEachTimeAndNoMore) {
  constexpr int kWaits = 20;
  const BoundedSpin spin{milliseconds(1)};
  const double before = ThreadProcessorSeconds();
  for (int i = 0; i < kWaits; ++i) {
    const TimePoint start = Clock::now();
    EXPECT_FALSE(spin.Until([] { return false; }));
    EXPECT_GE(Clock::now() - start, milliseconds(1));
  }
  EXPECT_LT(ThreadProcessorSeconds() - before, 2 * kWaits * 0.001);
}

}  // namespace
}  // namespace gantry
