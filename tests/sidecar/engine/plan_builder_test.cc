#include "sidecar/engine/plan_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::engine {
namespace {

using testing::TestArena;

// One side of a transfer: buffers of random pieces over a few arenas.
class Side {
 public:
  Side(std::mt19937& random, memory::MemoryMapper& mapper, int arenas, uint64_t seed) {
    for (int i = 0; i < arenas; ++i) {
      arenas_.push_back(std::make_unique<TestArena>(64 * 1024, seed + static_cast<uint64_t>(i)));
      used_.push_back(0);
      memory::AllocationSource source;
      source.fd = std::make_shared<UniqueFd>(arenas_.back()->Fd());
      source.size = arenas_.back()->size();
      source.writable = true;
      mapped_.push_back(*memory::MappedAllocation::Create(mapper, source));
    }
    random_ = &random;
  }

  // A buffer of `length` bytes in pieces that touch no other buffer's; arenas must have room.
  void AddBuffer(uint64_t length, std::optional<wire::BlockLayout> layout, bool one_piece) {
    std::vector<wire::Piece> pieces;
    for (uint64_t left = length; left > 0;) {
      const auto arena = (*random_)() % arenas_.size();
      const uint64_t gap = (*random_)() % 5;
      const uint64_t piece = one_piece ? left : std::min<uint64_t>(left, 1 + (*random_)() % 900);
      if (used_[arena] + gap + piece > arenas_[arena]->size()) continue;
      pieces.push_back({static_cast<uint32_t>(arena), used_[arena] + gap, piece});
      used_[arena] += gap + piece;
      left -= piece;
    }
    AddPieces(pieces, layout);
  }

  void AddPieces(const std::vector<wire::Piece>& pieces,
                 std::optional<wire::BlockLayout> layout = std::nullopt) {
    std::vector<uint64_t> sizes(arenas_.size(), 64 * 1024);
    maps_.push_back(std::make_unique<memory::PieceMap>(*memory::PieceMap::Create(pieces, sizes)));
    std::vector<uint32_t> indices(arenas_.size());
    std::iota(indices.begin(), indices.end(), 0u);
    buffers_.push_back(
        {"b" + std::to_string(buffers_.size()), maps_.back().get(), layout, indices});
  }

  // The byte at a flat offset, by the pieces one after the other: not by the code under test.
  uint8_t* At(size_t buffer, uint64_t offset) const {
    for (const wire::Piece& piece : buffers_[buffer].pieces->pieces()) {
      if (offset < piece.length) return arenas_[piece.allocation]->data() + piece.offset + offset;
      offset -= piece.length;
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<TestArena>> arenas_;
  std::vector<std::shared_ptr<const memory::MappedAllocation>> mapped_;
  std::vector<PlanBuffer> buffers_;

 private:
  std::mt19937* random_ = nullptr;
  std::vector<uint64_t> used_;
  std::vector<std::unique_ptr<memory::PieceMap>> maps_;
};

PlanInput InputOf(const wire::TransferRequest& request, const Side& local, const Side& remote) {
  PlanInput input;
  input.request = &request;
  input.local = local.buffers_;
  input.remote = remote.buffers_;
  input.local_allocations = local.mapped_;
  for (const auto& mapped : remote.mapped_) input.remote_allocations.push_back({mapped});
  return input;
}

Result<BuiltPlan> Build(PlanInput input, const PlanLimits& limits) {
  SegmentBudget budget(1'000'000);
  SegmentReservation reservation(budget);
  return BuildPlan(std::move(input), limits, &reservation);
}

// What the plan does, byte by byte, on copies of the arenas of the destination side.
void Execute(const transport::MovePlan& plan, const Side& local, const Side& remote) {
  const bool read = plan.operation == wire::Operation::kRead;
  for (const transport::MoveSegment& segment : plan.segments) {
    ASSERT_LE(segment.local_offset, 64u * 1024);
    for (uint32_t i = 0; i < segment.count; ++i) {
      uint8_t* here = local.arenas_[segment.local_allocation]->data() + segment.local_offset +
                      i * segment.local_stride;
      uint8_t* there = remote.arenas_[segment.remote_allocation]->data() + segment.remote_offset +
                       i * segment.remote_stride;
      std::memcpy(read ? here : there, read ? there : here, segment.length);
    }
  }
}

std::vector<std::vector<uint8_t>> Bytes(const Side& side) {
  std::vector<std::vector<uint8_t>> bytes;
  for (const auto& arena : side.arenas_) {
    bytes.emplace_back(arena->data(), arena->data() + arena->size());
  }
  return bytes;
}

void SetBytes(const Side& side, const std::vector<std::vector<uint8_t>>& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::memcpy(side.arenas_[i]->data(), bytes[i].data(), bytes[i].size());
  }
}

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
