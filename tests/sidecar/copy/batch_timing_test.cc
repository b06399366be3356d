#include "sidecar/copy/batch_timing.h"

#include <gtest/gtest.h>

namespace gantry::transport {
namespace {

constexpr uint64_t kMega = 1'000'000;
const TimePoint kNow = TimePoint(milliseconds(1'000'000));
const std::vector<int> kByRows = {0, 1};

// Both workers of rows copy 100 bytes in a nanosecond; the batches of worker 2 take two
// milliseconds.
BatchTiming Seen() {
  BatchTiming timing(4);
  for (const int worker : kByRows) {
    timing.RowsPosted(worker, kMega);
    timing.RowsDone(worker, kMega, microseconds(10), kNow);
  }
  timing.BatchDone(2, 0, milliseconds(2), kNow);
  return timing;
}

TEST(BatchTiming, ABatchIsBackBeforeTheRowsAreDoneOrIsNotPosted) {
  const BatchTiming timing = Seen();
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 501 * kMega, kNow));
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 499 * kMega, kNow));
  const std::vector<int> one = {0};
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, one, 251 * kMega, kNow)) << "one is half as fast";
}

TEST(BatchTiming, WhatIsGivenOutAlreadyIsDoneBefore) {
  BatchTiming timing = Seen();
  timing.RowsPosted(0, 200 * kMega);
  timing.RowsPosted(1, 100 * kMega);
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 201 * kMega, kNow));
  timing.RowsDone(0, 200 * kMega, nanoseconds(0), kNow);  // its worker died
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 399 * kMega, kNow));
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 401 * kMega, kNow)) << "the rate is as it was";
}

TEST(BatchTiming, WhatIsNotKnownIsTried) {
  const BatchTiming nothing(4);
  EXPECT_TRUE(nothing.ComesBackInTime(2, 0, kByRows, 1, kNow));
  const BatchTiming timing = Seen();
  EXPECT_TRUE(timing.ComesBackInTime(3, 0, kByRows, 1, kNow)) << "of another worker";
  EXPECT_TRUE(timing.ComesBackInTime(2, 1, kByRows, 1, kNow)) << "behind another batch";
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, {}, 1, kNow)) << "nobody copies rows";
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 1, kNow + milliseconds(9'999)));
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 1, kNow + milliseconds(10'001))) << "long ago";
}

// A quarter of a second of copies, however long that took.
TEST(BatchTiming, WhatManyCopiesOfRowsAgoWasLateIsTriedAgain) {
  BatchTiming timing = Seen();
  const auto copy = [&](uint64_t bytes) {
    timing.RowsPosted(0, bytes);
    timing.RowsDone(0, bytes, nanoseconds(static_cast<int64_t>(bytes / 100)), kNow);
  };
  copy((uint64_t{75} << 30) - kMega);
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 1, kNow));
  copy(kMega);
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 1, kNow));
  timing.BatchDone(2, 0, milliseconds(2), kNow);
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 1, kNow));
}

TEST(BatchTiming, BehindManyOthersItTakesAsLongAsBehindSome) {
  BatchTiming timing = Seen();
  timing.BatchDone(2, 17, milliseconds(2), kNow);
  EXPECT_FALSE(timing.ComesBackInTime(2, 30, kByRows, 499 * kMega, kNow));
}

TEST(BatchTiming, OneThatWasQuickDoesNotHideThatTheOthersAreLate) {
  BatchTiming timing = Seen();
  timing.BatchDone(2, 0, microseconds(10), kNow);
  EXPECT_FALSE(timing.ComesBackInTime(2, 0, kByRows, 299 * kMega, kNow));
  for (int i = 0; i < 20; ++i) timing.BatchDone(2, 0, microseconds(10), kNow);
  EXPECT_TRUE(timing.ComesBackInTime(2, 0, kByRows, 20 * kMega, kNow));
}

}  // namespace
}  // namespace gantry::transport
