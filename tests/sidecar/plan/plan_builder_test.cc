#include "sidecar/plan/plan_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/sidecar/plan/plan_sides.h"

namespace gantry::engine {
namespace {

// Runs the plan and the plain byte loop on the same start, and compares all memory of both sides.
void CheckPlan(const wire::TransferRequest& request, const Side& local, const Side& remote,
               uint64_t chunk_bytes_max) {
  auto built = Build(InputOf(request, local, remote), {1'000'000, chunk_bytes_max});
  ASSERT_TRUE(built) << built.error().message << " " << built.error().field;
  const bool read = request.operation == wire::Operation::kRead;
  const auto before_local = Bytes(local);
  const auto before_remote = Bytes(remote);
  uint64_t bytes = 0;
  const auto copy = [&](size_t l, uint64_t lo, size_t r, uint64_t ro, uint64_t length) {
    for (uint64_t i = 0; i < length; ++i) {
      (read ? *local.At(l, lo + i) : *remote.At(r, ro + i)) =
          read ? *remote.At(r, ro + i) : *local.At(l, lo + i);
    }
    bytes += length;
  };
  for (const wire::TransferRange& range : request.ranges) {
    copy(range.local_index, range.local_offset, range.remote_index, range.remote_offset,
         range.length);
  }
  for (size_t k = 0; request.by_blocks && k < local.buffers_.size(); ++k) {
    for (size_t i = 0; i < request.local_blocks.size(); ++i) {
      copy(k, request.local_blocks[i] * local.buffers_[k].layout->block_stride, k,
           request.remote_blocks[i] * remote.buffers_[k].layout->block_stride,
           local.buffers_[k].layout->block_bytes);
    }
  }
  const auto expected_local = Bytes(local);
  const auto expected_remote = Bytes(remote);
  SetBytes(local, before_local);
  SetBytes(remote, before_remote);
  Execute(*built->plan, local, remote);
  EXPECT_EQ(Bytes(local), expected_local);
  EXPECT_EQ(Bytes(remote), expected_remote);
  EXPECT_EQ(built->plan->bytes, bytes);
  for (const transport::MoveSegment& segment : built->plan->segments) {
    EXPECT_LE(segment.bytes(), chunk_bytes_max);
  }
}

class PlanProperty : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  worker::FakeCopyPool pool_;
};

TEST_P(PlanProperty, BlocksLandWhereTheLayoutSays) {
  for (int round = 0; round < 40; ++round) {
    Side local(random_, pool_, 3, 1);
    Side remote(random_, pool_, 2, 100);
    const uint64_t block = 1 + random_() % 300;
    const uint64_t blocks = 2 + random_() % 12;
    for (int k = 0; k < 3; ++k) {
      const bool strided = random_() % 2 == 0;
      const uint64_t stride = strided ? block + random_() % 50 : block;
      const uint64_t other = random_() % 3 == 0 ? block + random_() % 50 : stride;
      local.AddBuffer(stride * blocks, wire::BlockLayout{block, stride, blocks}, random_() % 2);
      remote.AddBuffer(other * blocks, wire::BlockLayout{block, other, blocks}, random_() % 2);
    }
    wire::TransferRequest request;
    request.operation = random_() % 2 == 0 ? wire::Operation::kRead : wire::Operation::kWrite;
    request.by_blocks = true;
    request.local_blocks.resize(blocks);
    std::iota(request.local_blocks.begin(), request.local_blocks.end(), 0u);
    request.remote_blocks = request.local_blocks;
    if (random_() % 3 != 0) {
      std::shuffle(request.local_blocks.begin(), request.local_blocks.end(), random_);
      std::shuffle(request.remote_blocks.begin(), request.remote_blocks.end(), random_);
    }
    request.local_blocks.resize(1 + random_() % blocks);
    request.remote_blocks.resize(request.local_blocks.size());
    CheckPlan(request, local, remote, 1 + random_() % 2000);
    if (HasFatalFailure()) return;
  }
}

TEST_P(PlanProperty, RangesLandWhereTheyWereAskedFor) {
  for (int round = 0; round < 40; ++round) {
    Side local(random_, pool_, 3, 1);
    Side remote(random_, pool_, 2, 100);
    for (int k = 0; k < 2; ++k) {
      local.AddBuffer(4000, std::nullopt, random_() % 2);
      remote.AddBuffer(4000, std::nullopt, random_() % 2);
    }
    wire::TransferRequest request;
    request.operation = random_() % 2 == 0 ? wire::Operation::kRead : wire::Operation::kWrite;
    uint64_t at = 0;
    for (uint32_t i = 0; at < 3500; ++i) {
      const uint64_t length = 1 + random_() % 400;
      const uint64_t gap = random_() % 2 == 0 ? 0 : random_() % 60;
      const auto index = static_cast<uint32_t>(random_() % 2);
      request.ranges.push_back(
          {index, at + gap, random_() % 8 == 0 ? 1 - index : index, at + gap, length});
      at += gap + length;
    }
    request.ranges.back().length = std::min<uint64_t>(request.ranges.back().length, 100);
    if (random_() % 2 == 0) std::shuffle(request.ranges.begin(), request.ranges.end(), random_);
    CheckPlan(request, local, remote, 1 + random_() % 2000);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanProperty, ::testing::Range(1, 6));

TEST(PlanBuilderTest, ConsecutiveBlocksMerge) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side local(random, pool, 1, 1);
  Side remote(random, pool, 1, 2);
  local.AddBuffer(4096, wire::BlockLayout{256, 256, 16}, true);
  remote.AddBuffer(4096, wire::BlockLayout{256, 256, 16}, true);
  wire::TransferRequest request;
  request.by_blocks = true;
  request.local_blocks = {5, 3, 4, 9};
  request.remote_blocks = {2, 0, 1, 9};
  auto built = Build(InputOf(request, local, remote), {});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->plan->descriptors_in, 4u);
  EXPECT_EQ(built->descriptors_out, 2u);
  EXPECT_EQ(built->plan->segments.size(), 2u);
  EXPECT_EQ(built->plan->segments[0].length, 3 * 256u);
  EXPECT_EQ(built->plan->segments[0].items, 3u);
}

TEST(PlanBuilderTest, OverlappingViewsOfOneAllocationAreSeen) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side local(random, pool, 1, 1);
  Side remote(random, pool, 1, 2);
  remote.AddBuffer(4096, wire::BlockLayout{256, 256, 16}, true);
  remote.AddBuffer(4096, wire::BlockLayout{256, 256, 16}, true);
  local.AddBuffer(4096, wire::BlockLayout{256, 256, 16}, true);
  local.buffers_.push_back(local.buffers_[0]);  // the same memory under another name
  wire::TransferRequest request;
  request.by_blocks = true;
  request.local_blocks = {5};
  request.remote_blocks = {2};
  auto built = Build(InputOf(request, local, remote), {});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kOverlap);
}

TEST(PlanBuilderTest, SourceMayNotBeADestination) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side side(random, pool, 1, 1);
  side.AddBuffer(4096, std::nullopt, true);
  wire::TransferRequest request;
  request.ranges = {{0, 0, 0, 50, 100}};
  auto built = Build(InputOf(request, side, side), {});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kOverlap);
  request.ranges = {{0, 0, 0, 100, 100}};
  EXPECT_TRUE(Build(InputOf(request, side, side), {}));
}

TEST(PlanBuilderTest, SeamsCannotMakeAPlanOfAnySize) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side local(random, pool, 1, 1);
  Side remote(random, pool, 1, 2);
  local.AddBuffer(20'000, std::nullopt, true);
  std::vector<wire::Piece> bytes;
  for (uint64_t i = 0; i < 1000; ++i) bytes.push_back({0, 2 * i, 1});
  remote.AddPieces(bytes);
  wire::TransferRequest request;
  for (uint64_t i = 0; i < 20; ++i) request.ranges.push_back({0, 1000 * i, 0, 0, 1000});
  PlanLimits limits;
  limits.segments_max = 19'999;
  auto built = Build(InputOf(request, local, remote), limits);
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kResourceExhausted);
  limits.segments_max = 20'000;
  EXPECT_TRUE(Build(InputOf(request, local, remote), limits));
  SegmentBudget small(10'000);  // of all plans together
  {
    SegmentReservation reservation(small);
    built = BuildPlan(InputOf(request, local, remote), limits, &reservation);
    ASSERT_FALSE(built);
    EXPECT_EQ(built.error().code, ErrorCode::kResourceExhausted);
  }
  EXPECT_EQ(small.reserved(), 0u) << "a refused plan kept its reservation";
}

// Blocks of 100 bytes over pieces of 250: two of five are cut.
TEST(PlanBuilderTest, BlocksThatSeamsCutCountAsManyTimes) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side local(random, pool, 1, 1);
  Side remote(random, pool, 1, 2);
  const wire::BlockLayout layout = {100, 100, 10};
  for (Side* side : {&local, &remote}) {
    std::vector<wire::Piece> pieces;
    for (uint64_t i = 0; i < 4; ++i) pieces.push_back({0, 1000 * i, 250});
    side->AddPieces(pieces, layout);
  }
  wire::TransferRequest request;
  request.by_blocks = true;
  request.local_blocks = {0, 2, 4, 7, 8};  // the second and the fourth are cut
  request.remote_blocks = {9, 0, 5, 1, 3};
  PlanLimits limits;
  limits.segments_max = 7;
  const auto built = Build(InputOf(request, local, remote), limits);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(built->plan->segments.size(), 7U);
  limits.segments_max = 6;
  EXPECT_FALSE(Build(InputOf(request, local, remote), limits));
  limits.segments_max = 4;
  EXPECT_FALSE(Build(InputOf(request, local, remote), limits));
  CheckPlan(request, local, remote, 1000);
}

TEST(PlanBuilderTest, DescriptorsAreLimited) {
  std::mt19937 random(7);
  worker::FakeCopyPool pool;
  Side local(random, pool, 1, 1);
  Side remote(random, pool, 1, 2);
  local.AddBuffer(4096, std::nullopt, true);
  remote.AddBuffer(4096, std::nullopt, true);
  wire::TransferRequest request;
  for (uint64_t i = 0; i < 11; ++i) request.ranges.push_back({0, 2 * i, 0, 2 * i, 1});
  auto built = Build(InputOf(request, local, remote), {10, 1024});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace gantry::engine
