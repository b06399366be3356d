// What peers tell of staging memory: nothing is lost on the way, and nothing outside of its limits
// is taken.
#include "lib/wire/stage_messages.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "tests/lib/wire/malformed_message.h"

namespace gantry::wire {
namespace {

constexpr uint64_t kSlice = 4096;

StageGrant SomeGrant() {
  return {UINT64_MAX,
          kSlice,
          {{kSlice, 0x7f00'0000'0000, {1, UINT32_MAX}}, {kSlice, UINT64_MAX - kSlice, {0, 7}}},
          {0, 63}};
}

StagedMove SomeMove() {
  StagedMove move;
  move.stage = UINT64_MAX;
  move.to_buffers = true;
  move.buffers = {{"b-1", 7}, {"b-2", UINT64_MAX}};
  move.ranges = {{1, 5, 100}, {0, UINT64_MAX - 1, 1}, {1, 0, kSlice}};
  move.slices = {3, 0, kStageSlicesMax - 1};
  move.priority = -4;
  move.time_ms = UINT32_MAX;
  return move;
}

TEST(StageMessagesTest, SlicesThatAreAskedForAreCounted) {
  proto::OpenStageRequest message;
  ExpectMalformed(SlicesOf(message));
  for (const int good : {1, kStageSlicesMax}) {
    message.set_slices(static_cast<uint32_t>(good));
    EXPECT_EQ(*SlicesOf(message), static_cast<uint32_t>(good));
  }
  for (const uint32_t wrong : {static_cast<uint32_t>(kStageSlicesMax) + 1, UINT32_MAX}) {
    message.set_slices(wrong);
    ExpectMalformed(SlicesOf(message));
  }
}

TEST(StageMessagesTest, GrantsArriveAsTheyWereGiven) {
  proto::OpenStageReply message;
  const StageGrant given = SomeGrant();
  ToMessage(given, &message);
  const auto grant = FromMessage(message);
  ASSERT_TRUE(grant) << grant.error().message;
  EXPECT_EQ(grant->stage, given.stage);
  EXPECT_EQ(grant->slice_bytes, given.slice_bytes);
  EXPECT_EQ(grant->slices, given.slices);
  EXPECT_EQ(grant->devices, given.devices);
  message.clear_rdma_devices();
  EXPECT_TRUE(FromMessage(message)->devices.empty()) << "of all";
}

TEST(StageMessagesTest, EverySliceOfAGrantIsChecked) {
  const std::vector<std::function<void(StageGrant*)>> wrong = {
      [](auto* grant) { grant->stage = 0; },
      [](auto* grant) { grant->slices.clear(); },
      [](auto* grant) { grant->slice_bytes = 0; },
      [](auto* grant) { grant->slice_bytes = kSlice + 1; },
      [](auto* grant) { grant->slices[1].length = kSlice - 1; },
      [](auto* grant) { grant->slices[1].length = 0; },
      [](auto* grant) { ++grant->slices[1].address; },
      [](auto* grant) { grant->slices[0].address = UINT64_MAX; },
      [](auto* grant) { grant->slices[1].keys.pop_back(); },
      [](auto* grant) { grant->slices[1].keys.push_back(1); },
      [](auto* grant) {
        for (auto& slice : grant->slices) slice.keys.clear();
      },
      [](auto* grant) {
        for (auto& slice : grant->slices) slice.keys.assign(65, 1);
        grant->devices.clear();
      },
      [](auto* grant) { grant->slices.assign(kStageSlicesMax + 1, grant->slices[0]); },
      [](auto* grant) { grant->devices = {0}; },
      [](auto* grant) {
        grant->devices = {0, 1, 2};
      },
      [](auto* grant) {
        grant->devices = {1, 0};
      },
      [](auto* grant) {
        grant->devices = {1, 1};
      },
      [](auto* grant) {
        grant->devices = {0, 64};
      }};
  for (size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    StageGrant grant = SomeGrant();
    wrong[i](&grant);
    proto::OpenStageReply message;
    ToMessage(grant, &message);
    ExpectMalformed(FromMessage(message));
  }
  StageGrant most = SomeGrant();
  most.slices.assign(kStageSlicesMax, {kSlice, 0, std::vector<uint32_t>(64, 1)});
  most.devices.clear();
  proto::OpenStageReply message;
  ToMessage(most, &message);
  EXPECT_TRUE(FromMessage(message));
}

TEST(StageMessagesTest, CopiesArriveAsTheyWereAskedFor) {
  proto::CopyStagedRequest message;
  const StagedMove asked = SomeMove();
  ToMessage(asked, &message);
  const auto move = FromMessage(message);
  ASSERT_TRUE(move) << move.error().message;
  EXPECT_EQ(move->stage, asked.stage);
  EXPECT_EQ(move->to_buffers, asked.to_buffers);
  EXPECT_EQ(move->priority, asked.priority);
  EXPECT_EQ(move->time_ms, asked.time_ms);
  EXPECT_EQ(move->slices, asked.slices);
  ASSERT_EQ(move->buffers.size(), asked.buffers.size());
  for (size_t i = 0; i < asked.buffers.size(); ++i) {
    EXPECT_EQ(move->buffers[i].id, asked.buffers[i].id);
    EXPECT_EQ(move->buffers[i].generation, asked.buffers[i].generation);
  }
  ASSERT_EQ(move->ranges.size(), asked.ranges.size());
  for (size_t i = 0; i < asked.ranges.size(); ++i) {
    EXPECT_EQ(move->ranges[i].buffer, asked.ranges[i].buffer);
    EXPECT_EQ(move->ranges[i].offset, asked.ranges[i].offset);
    EXPECT_EQ(move->ranges[i].length, asked.ranges[i].length);
  }
}

TEST(StageMessagesTest, EveryNumberOfACopyIsChecked) {
  const std::vector<std::function<void(StagedMove*)>> wrong = {
      [](auto* move) { move->stage = 0; },
      [](auto* move) { move->time_ms = 0; },
      [](auto* move) { move->buffers.clear(); },
      [](auto* move) { move->buffers.pop_back(); },
      [](auto* move) { move->buffers.resize(kStagedRangesMax + 1); },
      [](auto* move) { move->buffers[0].id = std::string(129, 'i'); },
      [](auto* move) { move->ranges.clear(); },
      [](auto* move) {
        move->ranges.resize(kStagedRangesMax + 1, {0, 0, 1});
      },
      [](auto* move) { move->ranges[0].buffer = 2; },
      [](auto* move) { move->ranges[2].length = 0; },
      [](auto* move) { move->ranges[1].length = 2; },
      [](auto* move) {
        move->ranges[0] = {0, 1, UINT64_MAX};
      },
      [](auto* move) {
        move->ranges = {{0, 0, UINT64_MAX}, {0, 0, 1}};
      },
      [](auto* move) { move->slices.clear(); },
      [](auto* move) {
        move->slices = {1, 2, 1};
      },
      [](auto* move) { move->slices = {kStageSlicesMax}; },
      [](auto* move) { move->slices = {UINT32_MAX}; },
      [](auto* move) { move->slices.assign(kStageSlicesMax + 1, 1); }};
  for (size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    StagedMove move = SomeMove();
    wrong[i](&move);
    proto::CopyStagedRequest message;
    ToMessage(move, &message);
    ExpectMalformed(FromMessage(message));
  }
  StagedMove most = SomeMove();
  most.buffers.resize(kStagedRangesMax);
  most.ranges.assign(kStagedRangesMax, {kStagedRangesMax - 1, 0, 1});
  most.slices.resize(kStageSlicesMax);
  std::iota(most.slices.begin(), most.slices.end(), 0);
  proto::CopyStagedRequest message;
  ToMessage(most, &message);
  EXPECT_TRUE(FromMessage(message));
}

TEST(StageMessagesTest, RangesAreThreeNumbersEach) {
  proto::CopyStagedRequest message;
  ToMessage(SomeMove(), &message);
  message.add_ranges(0);
  ExpectMalformed(FromMessage(message));
  message.add_ranges(UINT64_MAX);  // no part of a number is lost
  message.add_ranges(1);
  ExpectMalformed(FromMessage(message));
  message.set_ranges(0, uint64_t{1} << 32);
  ExpectMalformed(FromMessage(message));
}

TEST(StageMessagesTest, WhatBecameOfACopyIsInItsReply) {
  proto::CopyStagedReply message;
  ToMessage(std::nullopt, &message);
  EXPECT_EQ(message.ByteSizeLong(), 0u);
  EXPECT_FALSE(FromMessage(message));
  ToMessage(Error(ErrorCode::kDraining, "what", "do"), &message);
  const auto problem = FromMessage(message);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ErrorCode::kDraining);
  EXPECT_EQ(problem->message, "what");
  EXPECT_EQ(problem->hint, "do");
}

}  // namespace
}  // namespace gantry::wire
