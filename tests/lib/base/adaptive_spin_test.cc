#include "lib/base/adaptive_spin.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

// Long enough that a spin looks twice however busy the machine is.
constexpr milliseconds kLimit{20};

void LearnThatItIsInVain(AdaptiveSpin* spin) {
  for (int i = 0; i < 16; ++i) ASSERT_FALSE(spin->Until([] { return false; }));
}

TEST(AdaptiveSpin, StopsSpinningWhenItIsInVain) {
  AdaptiveSpin spin(kLimit);
  LearnThatItIsInVain(&spin);
  int spun = 0;
  for (int i = 0; i < 40; ++i) {
    int looks = 0;
    EXPECT_FALSE(spin.Until([&] { return ++looks < 0; }));
    if (looks > 1) ++spun;
  }
  EXPECT_LT(spun, 30) << "of 40 waits in vain";
}

// What it waits for comes at the second look, and each sleep takes long: nothing but a spin shows
// that spinning pays.
TEST(AdaptiveSpin, EndsAtTheDeadline) {
  AdaptiveSpin spin{milliseconds(20'000)};
  const TimePoint start = Clock::now();
  EXPECT_FALSE(spin.Until([] { return false; }, start + milliseconds(5)));
  EXPECT_GE(Clock::now() - start, milliseconds(5));
  EXPECT_LT(Clock::now() - start, milliseconds(5'000));
}

TEST(AdaptiveSpin, TriesAgainWhetherItPays) {
  AdaptiveSpin spin(kLimit);
  LearnThatItIsInVain(&spin);
  int waits = 0;
  bool pays = false;
  while (!pays && ++waits < 100) {
    int looks = 0;
    pays = spin.Until([&] { return ++looks == 2; });
    if (!pays) spin.Slept(2 * kLimit);
  }
  EXPECT_TRUE(pays);
  for (int i = 0; i < 100; ++i) {
    int looks = 0;
    ASSERT_TRUE(spin.Until([&] { return ++looks == 2; })) << "and goes on, after " << waits;
  }
}

TEST(AdaptiveSpin, SpinsAgainAfterASleepThatWasShort) {
  AdaptiveSpin spin(kLimit);
  LearnThatItIsInVain(&spin);
  spin.Slept(kLimit / 2);
  int looks = 0;
  EXPECT_TRUE(spin.Until([&] { return ++looks == 2; }));
}

}  // namespace
}  // namespace gantry
