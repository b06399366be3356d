// What a plan takes in memory while it is cut: no more than its segments, however many groups and
// shared runs it has.
#include "sidecar/plan/segment_writer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/sidecar/plan/plan_sides.h"

namespace gantry::engine {
namespace {

using transport::BlockPair;
using transport::BlockRun;

class SegmentWriterTest : public ::testing::Test {
 protected:
  SegmentWriterTest() {
    for (Side* side : {&local_, &remote_}) side->AddPieces({{0, 0, 1000}, {0, 2000, 1000}});
    units_.unit_bytes = units_.local_stride = units_.remote_stride = 1;
  }
  // As one group of blocks does it.
  Status AddUnit(uint32_t unit) {
    const BlockRun run = {unit, unit, 1, unit};
    RETURN_IF_ERROR(writer_.Expect(1));
    return writer_.AppendUnits(local_.buffers_[0], remote_.buffers_[0], units_, {&run, 1});
  }
  size_t room() const { return plan_.segments.capacity(); }

  std::mt19937 random_{7};
  worker::FakeCopyPool pool_;
  Side local_{random_, pool_, 1, 1};
  Side remote_{random_, pool_, 1, 2};
  BlockPair units_;  // of a byte, over two pieces
  SegmentBudget budget_{1'000'000};
  SegmentReservation reservation_{budget_};
  transport::MovePlan plan_;
  SegmentWriter writer_{PlanLimits(), &reservation_, &plan_};
};

// A transfer may name thousands of groups of a block each.
TEST_F(SegmentWriterTest, WhatIsThereIsNotCopiedForEachGroupThatFollows) {
  size_t grown = 0;
  for (uint32_t unit = 0; unit < 2000; ++unit) {
    const size_t before = room();
    ASSERT_TRUE(AddUnit(unit));
    grown += room() != before ? 1 : 0;
  }
  EXPECT_EQ(plan_.segments.size(), 2000U);
  EXPECT_LT(grown, 20U);
}

// Those are in no budget: they are not kept one by one.
TEST_F(SegmentWriterTest, SegmentsOfSharedRunsTakeNoRoomAmongTheSingleOnes) {
  std::vector<BlockRun> runs(1000);
  for (uint32_t i = 0; i < runs.size(); ++i) runs[i] = {2 * i, 2 * i, 1, i};
  ASSERT_TRUE(writer_.AddRuns(std::vector<BlockPair>(64, units_), std::move(runs)));
  ASSERT_TRUE(AddUnit(1));
  EXPECT_EQ(plan_.segments.size(), 64'001U);
  EXPECT_LT(room(), 100U);
}

}  // namespace
}  // namespace gantry::engine
