// What is registered and what is refused: invariants 1, 2 and 4.
#include <gmock/gmock.h>

#include <limits>

#include "tests/sidecar/registry/registry_fixture.h"

namespace gantry::registry {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

class RegistrationTest : public TwoArenasTest {};

TEST_F(RegistrationTest, AnswersBuffersInTheOrderOfTheRequest) {
  request_.buffers = {View("b", {{0, 0, 4096}}), View("a", {{1, 0, 4096}})};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  EXPECT_EQ((*buffers)[0]->description().name, "b");
  EXPECT_EQ((*buffers)[1]->description().name, "a");
  EXPECT_NE((*buffers)[0]->description().id, (*buffers)[1]->description().id);
  EXPECT_NE((*buffers)[0]->description().generation, (*buffers)[1]->description().generation);
}

// Invariant 1: the offset of a view is part of it, and a buffer is the sum of its pieces.
TEST_F(RegistrationTest, ViewsKeepTheirOffsetsWithinTheAllocation) {
  request_.buffers = {View("interior", {{1, 12'288, 4096}})};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  const memory::Extent extent = (*buffers)[0]->description().pieces.Locate(100, 4096 - 100);
  EXPECT_EQ(extent.allocation, 0u);  // the only one that this buffer uses
  EXPECT_EQ(extent.offset, 12'288u + 100);
  EXPECT_EQ((*buffers)[0]->length(), 4096u);
}

TEST_F(RegistrationTest, BufferOverSeveralFilesIsFlat) {
  request_.buffers = {View("flat", {{1, kMiB - 100, 100}, {0, 0, 50}, {1, 0, 7}})};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  const Buffer& flat = *buffers->front();
  EXPECT_EQ(flat.length(), 157u);
  EXPECT_EQ(flat.description().allocation_ids.size(), 2u);
  const memory::PieceMap& pieces = flat.description().pieces;
  EXPECT_EQ(pieces.Locate(99, 58).offset, kMiB - 1);
  EXPECT_EQ(pieces.Locate(99, 58).length, 1u);
  EXPECT_EQ(pieces.Locate(100, 57).allocation, 1u);
  EXPECT_EQ(pieces.Locate(150, 7).allocation, 0u);
  EXPECT_EQ(pieces.Locate(150, 7).offset, 0u);
}

// Invariants 1 and 2: nothing outside of an allocation is ever registered, nothing wraps around.
TEST_F(RegistrationTest, RangesOutsideOfTheAllocationAreRefusedWithTheirField) {
  struct Case {
    wire::Piece piece;
    ErrorCode code;
    const char* field;
  };
  const Case cases[] = {
      {{0, kMiB + 1, 1}, ErrorCode::kOutOfRange, "/buffers/1/pieces/1/offset"},
      {{0, kMiB, 1}, ErrorCode::kOutOfRange, "/buffers/1/pieces/1/length"},
      {{0, 1, kMiB}, ErrorCode::kOutOfRange, "/buffers/1/pieces/1/length"},
      {{0, kMax, 2}, ErrorCode::kOutOfRange, "/buffers/1/pieces/1/offset"},
      {{0, 2, kMax}, ErrorCode::kOutOfRange, "/buffers/1/pieces/1/length"},
      {{0, 0, 0}, ErrorCode::kInvalidArgument, "/buffers/1/pieces/1/length"},
      {{2, 0, 1}, ErrorCode::kInvalidArgument, "/buffers/1/pieces/1/allocation"},
      {{0xffffffff, 0, 1}, ErrorCode::kInvalidArgument, "/buffers/1/pieces/1/allocation"},
  };
  for (const Case& one : cases) {
    request_.buffers = {View("good", {{0, 0, 1}}), View("bad", {{1, 0, 1}, one.piece})};
    ExpectRefused(one.code, one.field);
  }
}

TEST_F(RegistrationTest, LayoutsOutsideOfTheBufferAreRefusedWithTheirField) {
  struct Case {
    wire::BlockLayout layout;
    ErrorCode code;
    const char* field;
  };
  const Case cases[] = {
      {{0, 1, 1}, ErrorCode::kInvalidArgument, "/buffers/0/layout/block_bytes"},
      {{1, 1, 0}, ErrorCode::kInvalidArgument, "/buffers/0/layout/blocks"},
      {{64, 63, 2}, ErrorCode::kInvalidArgument, "/buffers/0/layout/block_stride"},
      {{1024, 1024, 5}, ErrorCode::kOutOfRange, "/buffers/0/layout"},
      {{2, uint64_t{1} << 63, 3}, ErrorCode::kOutOfRange, "/buffers/0/layout"},
      {{1, kMax, 2}, ErrorCode::kOutOfRange, "/buffers/0/layout"},
      {{kMax, kMax, (uint64_t{1} << 32) - 1}, ErrorCode::kOutOfRange, "/buffers/0/layout"},
      {{kMax, kMax, kMax}, ErrorCode::kInvalidArgument, "/buffers/0/layout/blocks"},
  };
  for (const Case& one : cases) {
    request_.buffers = {View("k", {{0, 0, 4096}})};
    request_.buffers[0].layout = one.layout;
    ExpectRefused(one.code, one.field);
  }
  request_.buffers[0].layout = wire::BlockLayout{1000, 1032, 4};  // the last needs no stride
  EXPECT_TRUE(registry_.Register(request_));
}

TEST_F(RegistrationTest, NamesAreCheckedAndUniqueWithinARequest) {
  request_.buffers = {View("k", {{0, 0, 1}}), View("no/slash", {{0, 0, 1}})};
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers/1/name");
  request_.buffers = {View("k", {{0, 0, 1}}), View("k", {{0, 0, 1}})};
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers/1/name");
  request_.buffers = {View("k", {{0, 0, 1}})};
  request_.workload = "../etc";
  ExpectRefused(ErrorCode::kInvalidArgument, "/workload");
  request_.workload = "nobody";
  ExpectRefused(ErrorCode::kNotFound, "/workload");
}

TEST_F(RegistrationTest, EmptyListsAndSizesAreRefused) {
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers");
  request_.buffers = {View("k", {})};
  ExpectRefused(ErrorCode::kInvalidArgument, "/buffers/0/pieces");
  request_.buffers = {View("k", {{0, 0, 1}})};
  request_.allocations[1].size = 0;
  ExpectRefused(ErrorCode::kInvalidArgument, "/allocations/1/size");
  request_.allocations[1] = {wire::MemoryKind::kHost, "", 1};
  ExpectRefused(ErrorCode::kNotExportable, "/allocations/1/fd_token");
  request_.allocations.clear();
  ExpectRefused(ErrorCode::kInvalidArgument, "/allocations");
}

TEST_F(RegistrationTest, TokensOfAnotherWorkloadNameNothing) {
  const WorkloadInfo other = Enlist("engine-1");
  request_.allocations[1].fd_token = HandOver(other, MakeMemfd(kMiB));
  request_.buffers = {View("k", {{0, 0, 1}})};
  ExpectRefused(ErrorCode::kNotFound, "/allocations/1/fd_token");
}

TEST_F(RegistrationTest, FilesThatAreNotWhatWasSaidAreRefused) {
  request_.buffers = {View("k", {{0, 0, 1}})};
  request_.allocations[0].size = kMiB + 1;
  ExpectRefused(ErrorCode::kFdTooShort, "/allocations/0");
  request_.allocations[0] = {wire::MemoryKind::kHost, HandOver(owner_, MakeMemfd(kMiB, 0)), kMiB};
  ExpectRefused(ErrorCode::kFdNotSealed, "/allocations/0");
  request_.allocations[0].fd_token = HandOver(owner_, UniqueFd(::open("/dev/null", O_RDWR)));
  ExpectRefused(ErrorCode::kNotExportable, "/allocations/0");
}

TEST_F(RegistrationTest, PeersCannotBeGivenWriteAccessToAReadOnlyDescriptor) {
  const UniqueFd memory = MakeMemfd(kMiB);
  request_.allocations[1].fd_token = HandOver(owner_, ReopenReadOnly(memory));
  request_.buffers = {View("r", {{1, 0, 1}}), View("w", {{1, 0, 1}})};
  request_.buffers[1].access.remote_write = true;
  ExpectRefused(ErrorCode::kFdReadOnly, "/buffers/1/access/remote_write");

  request_.buffers[1].access = {.remote_read = true};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  EXPECT_FALSE((*buffers)[1]->Acquire()->allocations()[0]->writable());
}

TEST_F(RegistrationTest, FilesSealedAgainstWritingAreMappedReadOnly) {
  request_.allocations[0].fd_token =
      HandOver(owner_, MakeMemfd(kMiB, F_SEAL_SHRINK | F_SEAL_WRITE));
  request_.buffers = {View("r", {{0, 0, 1}}), View("w", {{1, 0, 1}})};
  const auto buffers = registry_.Register(request_);
  ASSERT_TRUE(buffers);
  EXPECT_FALSE((*buffers)[0]->Acquire()->allocations()[0]->writable());
  EXPECT_TRUE((*buffers)[1]->Acquire()->allocations()[0]->writable());
}

TEST_F(RegistrationTest, SameSpecificationAgainAnswersTheSameBuffer) {
  request_.buffers = {View("a", {{0, 0, 64}, {1, 0, 64}}), View("b", {{0, 64, 64}})};
  const auto first = registry_.Register(request_);
  ASSERT_TRUE(first);
  std::swap(request_.allocations[0], request_.allocations[1]);  // other indices, same memory
  request_.buffers = {View("b", {{1, 64, 64}}), View("a", {{1, 0, 64}, {0, 0, 64}}),
                      View("c", {{0, 0, 1}})};
  const auto again = registry_.Register(request_);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)[0], (*first)[1]);
  EXPECT_EQ((*again)[1], (*first)[0]);
  EXPECT_EQ(registry_.Totals().buffers, 3u);
  EXPECT_EQ(mapper_.maps(), 2);
}

TEST_F(RegistrationTest, AnotherSpecificationIsAConflictThatNamesTheDifference) {
  request_.buffers = {View("k", {{0, 0, 64}})};
  ASSERT_TRUE(registry_.Register(request_));
  const auto expect_conflict = [&](const std::string& difference) {
    const auto outcome = registry_.Register(request_);
    ASSERT_TRUE(FailsWith(outcome, ErrorCode::kConflict));
    EXPECT_EQ(outcome.error().field, "/buffers/0/" + difference);
    EXPECT_THAT(outcome.error().message, ::testing::HasSubstr(difference));
  };
  request_.buffers = {View("k", {{0, 1, 64}})};
  expect_conflict("pieces");
  request_.buffers = {View("k", {{1, 0, 64}})};  // the same range of another allocation
  expect_conflict("pieces");
  request_.buffers = {View("k", {{0, 0, 64}})};
  request_.buffers[0].access.remote_read = true;
  expect_conflict("access");
  request_.buffers = {View("k", {{0, 0, 64}})};
  request_.buffers[0].layout = wire::BlockLayout{8, 8, 8};
  expect_conflict("layout");
}

TEST_F(RegistrationTest, AllocationKnownWithAnotherSizeIsAConflict) {
  request_.buffers = {View("k", {{0, 0, 64}})};
  ASSERT_TRUE(registry_.Register(request_));
  request_.allocations[0].size = kMiB / 2;
  request_.buffers = {View("l", {{0, 0, 64}})};
  const auto outcome = registry_.Register(request_);
  ASSERT_TRUE(FailsWith(outcome, ErrorCode::kConflict));
  EXPECT_EQ(outcome.error().field, "/allocations/0/size");
}

// Invariant 4: wherever the n-th mapping fails, nothing stays and nothing is published.
TEST_F(RegistrationTest, FailureAtAnyAllocationLeavesNothing) {
  std::vector<std::pair<std::string, uint64_t>> memory;
  for (int i = 0; i < 6; ++i) memory.emplace_back(Memory(4096), 4096);
  request_ = RequestOver(memory);
  for (uint32_t i = 0; i < 6; i += 2) {
    request_.buffers.push_back(View("k" + std::to_string(i), {{i, 0, 4096}, {i + 1, 0, 4096}}));
  }
  for (int failing = 1; failing <= 6; ++failing) {
    mapper_.FailMap(mapper_.maps() + failing);
    const auto outcome = registry_.Register(request_);
    ASSERT_TRUE(FailsWith(outcome, ErrorCode::kDeviceError)) << failing;
    EXPECT_EQ(outcome.error().field, "/buffers/" + std::to_string((failing - 1) / 2));
    EXPECT_EQ(mapper_.live(), 0u) << failing;
    EXPECT_EQ(registry_.Totals().buffers, 0u) << failing;
    EXPECT_EQ(registry_.Totals().allocations, 0u) << failing;
    EXPECT_FALSE(registry_.ByName(owner_.name, "k0")) << failing;
  }
  mapper_.FailMap(0);
  EXPECT_TRUE(registry_.Register(request_));
}

TEST_F(RegistrationTest, FailedRegistrationLeavesThatBeforeItAlone) {
  request_.buffers = {View("old", {{0, 0, 64}})};
  const auto old = registry_.Register(request_);
  ASSERT_TRUE(old);
  request_.buffers = {View("new0", {{0, 0, 64}}), View("new1", {{1, 0, 64}})};
  mapper_.FailMap(2);
  EXPECT_TRUE(FailsWith(registry_.Register(request_), ErrorCode::kDeviceError));
  EXPECT_EQ(mapper_.live(), 1u);
  EXPECT_EQ(registry_.Totals().buffers, 1u);
  EXPECT_TRUE(registry_.Acquire(owner_.name, "old", 0));
}

// Invariant 4, for what can only be refused at the n-th buffer.
TEST_F(RegistrationTest, ConflictAtAnyBufferLeavesNothingNew) {
  request_.buffers = {View("taken", {{0, 0, 64}})};
  ASSERT_TRUE(registry_.Register(request_));
  for (size_t conflicting = 0; conflicting < 4; ++conflicting) {
    request_.buffers.clear();
    for (size_t i = 0; i < 4; ++i) {
      const std::string name = i == conflicting ? "taken" : "new" + std::to_string(i);
      request_.buffers.push_back(View(name, {{1, 0, 64}}));
    }
    const auto outcome = registry_.Register(request_);
    ASSERT_TRUE(FailsWith(outcome, ErrorCode::kConflict));
    EXPECT_EQ(outcome.error().field, "/buffers/" + std::to_string(conflicting) + "/pieces");
    EXPECT_EQ(registry_.Totals().buffers, 1u);
    EXPECT_EQ(mapper_.live(), 1u);
  }
}

// What cannot be unmapped while rolling back is logged; the error stays the first one.
TEST_F(RegistrationTest, RollbackThatFailsReturnsTheFirstError) {
  request_.buffers = {View("a", {{0, 0, 64}}), View("b", {{1, 0, 64}})};
  mapper_.FailMap(2);
  mapper_.FailUnmaps();
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(FailsWith(registry_.Register(request_), ErrorCode::kDeviceError));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("unmapping an allocation failed"));
  EXPECT_EQ(mapper_.unmaps(), 1);
}

class RegistrationLimitsTest : public RegistryFixture {
 protected:
  RegistrationLimitsTest()
      : RegistryFixture({.buffers_max = 3,
                         .buffers_per_request_max = 2,
                         .allocations_per_request_max = 2,
                         .pieces_per_buffer_max = 3,
                         .pieces_per_request_max = 4}) {}
};

TEST_F(RegistrationLimitsTest, LimitsAreKept) {
  wire::RegistrationRequest request = RequestOver({{Memory(kMiB), kMiB}});
  const auto expect = [&](ErrorCode code, const std::string& field) {
    const auto outcome = registry_.Register(request);
    ASSERT_TRUE(FailsWith(outcome, code));
    EXPECT_EQ(outcome.error().field, field);
  };
  const wire::Piece piece{0, 0, 1};
  request.buffers = {View("a", {piece}), View("b", {piece}), View("c", {piece})};
  expect(ErrorCode::kBodyTooLarge, "/buffers");
  request.buffers = {View("a", {piece, piece, piece, piece})};
  expect(ErrorCode::kBodyTooLarge, "/buffers/0/pieces");
  request.buffers = {View("a", {piece, piece}), View("b", {piece, piece, piece})};
  expect(ErrorCode::kBodyTooLarge, "/buffers/1/pieces");

  request.buffers = {View("a", {piece}), View("b", {piece})};
  ASSERT_TRUE(registry_.Register(request));
  request.buffers = {View("c", {piece}), View("d", {piece})};
  expect(ErrorCode::kResourceExhausted, "/buffers");
  EXPECT_EQ(registry_.Totals().buffers, 2u);
  request.buffers = {View("a", {piece}), View("c", {piece})};  // one of them is there
  EXPECT_TRUE(registry_.Register(request));
}

}  // namespace
}  // namespace gantry::registry
