#include "lib/base/expected_answer.h"

#include <gtest/gtest.h>

#include <utility>

namespace gantry {
namespace {

TEST(ExpectedAnswer, LooksAroundTheTimeThatTheSoonerOfTwoTook) {
  const auto window = [](nanoseconds last, nanoseconds before) {
    const ExpectedAnswer::Window of = ExpectedAnswer::WindowOf(last, before);
    return std::pair(of.from, of.until);
  };
  using Pair = std::pair<nanoseconds, nanoseconds>;
  EXPECT_EQ(window(milliseconds(4), milliseconds(40)),
            Pair(microseconds(3'500), microseconds(4'500)));
  EXPECT_EQ(window(milliseconds(40), milliseconds(4)),
            Pair(microseconds(3'500), microseconds(4'500)));
  EXPECT_EQ(window(milliseconds(40), milliseconds(40)), Pair(milliseconds(39), milliseconds(41)));
  EXPECT_EQ(window(microseconds(100), milliseconds(1)), Pair(0, microseconds(400))) << "at once";
  EXPECT_EQ(window(milliseconds(4), nanoseconds(0)), Pair()) << "one alone says nothing";
  EXPECT_EQ(window(milliseconds(400), milliseconds(400)), Pair()) << "too long to be worth it";
}

TEST(ExpectedAnswer, KnowsItsWindowWhereItHasPatience) {
  ExpectedAnswer patient(ExpectedAnswer::Patience::kLong);
  ExpectedAnswer short_of_time(ExpectedAnswer::Patience::kShort);
  for (ExpectedAnswer* expected : {&patient, &short_of_time}) {
    expected->Learn(milliseconds(4));
    EXPECT_EQ(expected->window().until, nanoseconds(0)) << "one alone says nothing";
    expected->Learn(milliseconds(4));
  }
  EXPECT_EQ(patient.window().from, microseconds(3'500));
  EXPECT_EQ(patient.window().until, microseconds(4'500));
  EXPECT_EQ(short_of_time.window().until, nanoseconds(0));
}

}  // namespace
}  // namespace gantry
