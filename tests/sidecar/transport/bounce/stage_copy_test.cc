// What sessions have copied between their stages and buffers: the bytes that they name, as far as
// they may, and nothing while something about it is wrong.
#include "tests/sidecar/transport/bounce/stage_target_fixture.h"

namespace gantry::transport {
namespace {

using Range = wire::StagedMove::Range;

class StageCopyTest : public StageTargetFixture {
 protected:
  // It is refused before anybody copies, keeps nothing, and may be tried again.
  void ExpectRefused(const wire::StagedMove& move, ErrorCode code,
                     const std::string& session = "a") {
    const Status refused = Refusal(session, move);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code) << refused.error().message;
    EXPECT_FALSE(refused.error().message.empty());
    EXPECT_EQ(buffers_.in_use(), 0);
  }
  void ExpectCopied(const wire::StagedMove& move) {
    auto copied = CopyLater("a", move);
    auto copy = copier_.Next();
    ASSERT_TRUE(copy);
    copier_.Finish(*std::move(copy));
    EXPECT_TRUE(copied.get());
  }
};

TEST_F(StageCopyTest, WhatAPeerWroteToItsSlicesGoesToTheBuffers) {
  const wire::StageGrant grant = Open("a", 3);
  Write(grant.slices[2], 0, "hello");
  Write(grant.slices[2], 5, "peer");
  auto copied = CopyLater("a", Move(grant, true, {{0, 10, 5}, {0, 50, 4}}, {2}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy && copy->to_buffer);
  EXPECT_FALSE(Ended(copied, milliseconds(50))) << "it waits for the copy";
  EXPECT_EQ(buffers_.in_use(), 1);
  copier_.Finish(*std::move(copy));
  EXPECT_TRUE(copied.get());
  EXPECT_EQ(buffers_.in_use(), 0);
  std::string expected(kGpuBytes, 'g');
  expected.replace(110, 5, "hello").replace(150, 4, "peer");
  EXPECT_EQ(copier_.gpu(), expected);
}

TEST_F(StageCopyTest, WhatIsInTheBuffersGoesToTheSlicesInTheirOrder) {
  const wire::StageGrant grant = Open("a", 3);
  const std::string tail = "the last bytes";
  copier_.gpu().replace(100 + kStagingSliceBytes, tail.size(), tail);
  copier_.gpu().replace(100, 5, "first");
  auto copied =
      CopyLater("a", Move(grant, false, {{0, 0, kStagingSliceBytes + tail.size()}}, {2, 0}));
  auto copy = copier_.Next();
  ASSERT_TRUE(copy && !copy->to_buffer);
  copier_.Finish(*std::move(copy));
  ASSERT_TRUE(copied.get());
  EXPECT_EQ(Read(grant.slices[2], 0, 6), "firstg");
  EXPECT_EQ(Read(grant.slices[2], kStagingSliceBytes - 1, 1), "g");
  const auto length = static_cast<uint32_t>(tail.size());
  EXPECT_EQ(Read(grant.slices[0], 0, length), tail);
  EXPECT_EQ(Read(grant.slices[0], length, 1), std::string(1, '\0'));
  EXPECT_EQ(Read(grant.slices[1], 0, 1), std::string(1, '\0'));
}

// Ranges are cut at pieces and at slices that do not lie beside each other, and nowhere else.
TEST_F(StageCopyTest, RangesAreCutAtPiecesAndSlices) {
  const auto one = GpuAllocation();
  const auto two = GpuAllocation();
  constexpr uint64_t kPiece = kStagingSliceBytes;
  buffers_.Put("b-2", BufferOn({one, two}, {{0, 7, kPiece}, {1, 9, kPiece}, {1, 9 + kPiece, 10}}));
  const wire::StageGrant grant = Open("a", 2);
  wire::StagedMove move =
      Move(grant, true, {{1, kPiece - 3, 8}, {0, 0, 2}, {1, kPiece + 5, kPiece + 5}}, {0, 1});
  move.buffers.push_back({"b-2", 1});
  auto copied = CopyLater("a", move);
  auto copy = copier_.Next();
  ASSERT_TRUE(copy);
  const uint64_t stage = copy->ranges.front().stage_offset;
  const std::vector<StagedRange> expected = {{one, 7 + kPiece - 3, stage, 3},
                                             {two, 9, stage + 3, 5},
                                             {nullptr, 100, stage + 8, 2},  // of b-1
                                             {two, 14, stage + 10, kPiece + 5}};
  ASSERT_EQ(copy->ranges.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(copy->ranges[i].memory == expected[i].memory, expected[i].memory != nullptr);
    EXPECT_EQ(copy->ranges[i].offset, expected[i].offset);
    EXPECT_EQ(copy->ranges[i].stage_offset, expected[i].stage_offset);
    EXPECT_EQ(copy->ranges[i].bytes, expected[i].bytes);
  }
  EXPECT_GE(stage, kHalf) << "of the target's half";
  copier_.Finish(*std::move(copy), Fail(ErrorCode::kDeviceError, "a sick GPU"));
  EXPECT_EQ(copied.get().error().code, ErrorCode::kDeviceError);
}

TEST_F(StageCopyTest, ItHasThePriorityAndTheTimeThatThePeerSaysWithinLimits) {
  Make({.copy_time_min = milliseconds(1'000), .copy_time_max = milliseconds(2'000)});
  const wire::StageGrant grant = Open("a", 1);
  wire::StagedMove move = Move(grant, true, {{0, 0, 1}}, {0});
  for (const uint32_t time_ms : {500U, 1'500U, 2'000U, 60'000U, UINT32_MAX}) {
    move.time_ms = time_ms;
    move.priority = time_ms == 500 ? -3 : 4;
    const TimePoint begun = Clock::now();
    auto copied = CopyLater("a", move);
    auto copy = copier_.Next();
    ASSERT_TRUE(copy && copy->end);
    const milliseconds time(std::clamp(time_ms, 1'000U, 2'000U));
    EXPECT_GE(*copy->end, begun + time);
    EXPECT_LE(*copy->end, Clock::now() + time);
    EXPECT_EQ(copy->priority, move.priority);
    copier_.Finish(*std::move(copy), Fail(ErrorCode::kDeadlineExceeded, "its end"));
    EXPECT_EQ(copied.get().error().code, ErrorCode::kDeadlineExceeded);
  }
  ExpectCopied(move);
}

TEST_F(StageCopyTest, AStageThatTheSessionDoesNotHaveIsRefused) {
  const wire::StageGrant mine = Open("a", 1);
  const wire::StageGrant others = Open("b", 1);
  ExpectRefused(Move(others, true, {{0, 0, 1}}, {0}), ErrorCode::kNotFound);
  ExpectRefused(Move(mine, true, {{0, 0, 1}}, {0}), ErrorCode::kNotFound, "c");
  wire::StagedMove move = Move(mine, true, {{0, 0, 1}}, {0});
  move.stage = 0;
  ExpectRefused(move, ErrorCode::kNotFound);
  target_->Close("a", mine.stage);
  ExpectRefused(Move(mine, true, {{0, 0, 1}}, {0}), ErrorCode::kNotFound);
  const wire::StageGrant next = Open("a", 1);
  ExpectRefused(Move(mine, true, {{0, 0, 1}}, {0}), ErrorCode::kNotFound);
  ExpectCopied(Move(next, true, {{0, 0, 1}}, {0}));
}

TEST_F(StageCopyTest, SlicesThatAreNotTheStagesOrNotFilledAreRefused) {
  const wire::StageGrant grant = Open("a", 2);
  constexpr uint64_t kSlice = kStagingSliceBytes;
  const std::vector<std::pair<std::vector<Range>, std::vector<uint32_t>>> wrong = {
      {{{0, 0, 1}}, {2}},                                // of nobody
      {{{0, 0, 1}}, {UINT32_MAX}},                       //
      {{{0, 0, 1}}, {}},                                 // nowhere
      {{}, {0}},                                         // nothing
      {{{0, 0, kSlice + 1}}, {0}},                       // more than there is room
      {{{0, 0, kSlice}}, {0, 1}},                        // the second is not needed
      {{{0, 0, 2 * kSlice + 1}}, {0, 1}},                //
      {{{0, 0, UINT64_MAX}, {0, 0, 2}}, {0}},            // the sum wraps
      {{{0, 0, UINT64_MAX}, {0, 0, kSlice + 1}}, {0}}};  //
  for (size_t i = 0; i < wrong.size(); ++i) {
    SCOPED_TRACE(i);
    const wire::StagedMove move = Move(grant, true, wrong[i].first, wrong[i].second);
    ExpectRefused(move, ErrorCode::kOutOfRange);
    // Before its ranges are looked at: their sum is relied on then.
    const bool no_slice = i < 2;
    EXPECT_EQ(Refusal("a", move).error().message.find("do not fill") == std::string::npos,
              no_slice);
  }
  ExpectRefused(Move(grant, true, {{0, 0, kSlice + 1}}, {0, 0}), ErrorCode::kConflict);
  ExpectCopied(Move(grant, true, {{0, 0, kSlice + 1}}, {1, 0}));
  ExpectCopied(Move(grant, true, {{0, 0, 2 * kSlice}}, {0, 1}));
}

TEST_F(StageCopyTest, RangesLieWithinTheirBuffers) {
  const wire::StageGrant grant = Open("a", 1);
  constexpr uint64_t kLength = kGpuBytes - 200;
  for (const bool to_buffers : {false, true}) {
    for (const Range& range : {Range{0, kLength, 1}, Range{0, kLength - 1, 2},
                               Range{0, UINT64_MAX, 1}, Range{0, UINT64_MAX - 1, 2}}) {
      ExpectRefused(Move(grant, to_buffers, {{0, 0, 1}, range}, {0}), ErrorCode::kOutOfRange);
    }
    ExpectCopied(Move(grant, to_buffers, {{0, kLength - 1, 1}}, {0}));
  }
}

TEST_F(StageCopyTest, OnlyWhatTheSessionMayIsCopied) {
  const wire::StageGrant grant = Open("a", 1);
  const wire::StagedMove to = Move(grant, true, {{0, 0, 1}}, {0});
  const wire::StagedMove from = Move(grant, false, {{0, 0, 1}}, {0});
  buffers_.Change("b-1", [](auto* entry) { entry->access = {true, false}; });
  ExpectRefused(to, ErrorCode::kPermissionDenied);
  ExpectCopied(from);
  buffers_.Change("b-1", [](auto* entry) { entry->access = {false, true}; });
  ExpectRefused(from, ErrorCode::kPermissionDenied);
  ExpectCopied(to);
  buffers_.Change("b-1", [](auto* entry) { entry->suspended = true; });
  ExpectRefused(to, ErrorCode::kDraining);
  buffers_.Change("b-1", [](auto* entry) {
    entry->suspended = false;
    entry->generation = 2;
  });
  ExpectRefused(to, ErrorCode::kStaleGeneration);
  buffers_.Erase("b-1");
  ExpectRefused(from, ErrorCode::kNotFound);
}

TEST_F(StageCopyTest, MemoryThatIsReadOnlyOrNoGpusIsRefused) {
  const wire::StageGrant grant = Open("a", 1);
  buffers_.Put("b-1", BufferOn({GpuAllocation(false)}, {{0, 0, 100}}));
  ExpectRefused(Move(grant, true, {{0, 0, 1}}, {0}), ErrorCode::kPermissionDenied);
  ExpectCopied(Move(grant, false, {{0, 0, 1}}, {0}));
  buffers_.Put("b-1", BufferOn({AllocationOf(mapper_, anything_)}, {{0, 0, 100}}));
  for (const bool to_buffers : {false, true}) {
    ExpectRefused(Move(grant, to_buffers, {{0, 0, 1}}, {0}), ErrorCode::kPathUnavailable);
  }
}

TEST_F(StageCopyTest, OneOfSeveralBuffersThatIsRefusedRefusesAll) {
  const wire::StageGrant grant = Open("a", 1);
  wire::StagedMove move = Move(grant, true, {{0, 0, 1}, {1, 0, 1}}, {0});
  move.buffers.push_back({"b-2", 1});
  ExpectRefused(move, ErrorCode::kNotFound);
  buffers_.Put("b-2", BufferOn({GpuAllocation()}, {{0, 0, 100}}));
  ExpectCopied(move);
}

TEST_F(StageCopyTest, ASliceIsOfOneCopyAtATime) {
  const wire::StageGrant grant = Open("a", 3);
  auto first = CopyLater("a", Move(grant, true, {{0, 0, kStagingSliceBytes + 1}}, {0, 1}));
  auto held = copier_.Next();
  ASSERT_TRUE(held);
  for (const bool to_buffers : {false, true}) {
    for (const uint32_t slice : {0, 1}) {
      const Status refused = Refusal("a", Move(grant, to_buffers, {{0, 0, 1}}, {slice}));
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
    }
  }
  // Another one is free, for as long as it takes.
  ExpectCopied(Move(grant, false, {{0, 0, 1}}, {2}));
  EXPECT_FALSE(Ended(first));
  copier_.Finish(*std::move(held));
  EXPECT_TRUE(first.get());
  ExpectCopied(Move(grant, false, {{0, 0, 1}}, {0}));
}

TEST_F(StageCopyTest, SoManyCopiesRunAtOnce) {
  Make({.copies_max = 2});
  const wire::StageGrant one = Open("a", 2);
  const wire::StageGrant other = Open("b", 2);
  auto first = CopyLater("a", Move(one, true, {{0, 0, 1}}, {0}));
  auto held_first = copier_.Next();
  auto second = CopyLater("b", Move(other, true, {{0, 0, 1}}, {0}));
  auto held_second = copier_.Next();
  ASSERT_TRUE(held_first && held_second);
  const Status refused = Refusal("a", Move(one, true, {{0, 0, 1}}, {1}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  copier_.Finish(*std::move(held_first));
  EXPECT_TRUE(first.get());
  ExpectCopied(Move(one, true, {{0, 0, 1}}, {1}));
  copier_.Finish(*std::move(held_second));
  EXPECT_TRUE(second.get());
}

}  // namespace
}  // namespace gantry::transport
