// Plans by rows: what they move is what a plan block by block moves, and how few segments they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "tests/sidecar/plan/plan_sides.h"

namespace gantry::engine {
namespace {

using transport::MovePlan;
using transport::MoveSegment;
using transport::RowLimits;

constexpr RowLimits kRows = {4, 20, 300, 2048, 40};

// A byte that moves: where from, where to, and for which item.
using Byte = std::tuple<uint32_t, uint64_t, uint32_t, uint64_t, uint32_t>;

std::vector<Byte> BytesOf(const MovePlan& plan) {
  std::vector<Byte> bytes;
  for (const MoveSegment& segment : plan.segments) {
    const bool item_a_block = segment.count > 1 && !segment.by_rows;
    const uint64_t item_bytes = item_a_block ? segment.length : segment.length / segment.items;
    for (uint32_t block = 0; block < segment.count; ++block) {
      const uint32_t first = segment.first_item + (item_a_block ? block : 0);
      for (uint64_t i = 0; i < segment.length; ++i) {
        bytes.emplace_back(
            segment.local_allocation, segment.local_offset + block * segment.local_stride + i,
            segment.remote_allocation, segment.remote_offset + block * segment.remote_stride + i,
            first + static_cast<uint32_t>(i / item_bytes));
      }
    }
  }
  std::sort(bytes.begin(), bytes.end());
  return bytes;
}

uint64_t RowSegments(const MovePlan& plan) {
  uint64_t rows = 0;
  for (const MoveSegment& segment : plan.segments) rows += segment.by_rows ? 1 : 0;
  return rows;
}

void ExpectWithin(const MovePlan& plan, const RowLimits& limits) {
  uint64_t rows = 0, of_rows = 0, bytes = 0;
  for (const MoveSegment& segment : plan.segments) {
    bytes += segment.bytes();
    if (!segment.by_rows) continue;
    ++of_rows;
    rows += segment.count;
    EXPECT_GE(segment.count, limits.rows_min);
    EXPECT_LE(segment.length, std::max(limits.row_bytes_max, limits.few_row_bytes_max));
    EXPECT_LE(segment.bytes(), limits.bytes_max);
    for (const uint64_t stride : {segment.local_stride, segment.remote_stride}) {
      EXPECT_GE(stride, segment.length);
      EXPECT_LE(stride, limits.step_max);
    }
  }
  EXPECT_EQ(bytes, plan.bytes);
  EXPECT_EQ(plan.segments.copies().of_rows, of_rows);
  EXPECT_EQ(plan.segments.copies().rows, rows);
}

class RowPlan : public ::testing::TestWithParam<int> {
 protected:
  uint64_t Some(uint64_t most) { return 1 + random_() % most; }
  bool Rarely() { return random_() % 4 == 0; }

  // Layers mostly at one step in one arena. They may lie in descending order, or on each other.
  void AddLayers(Side* side, size_t layers, const std::vector<wire::BlockLayout>& layouts) {
    uint64_t bytes = 0;
    for (const auto& layout : layouts) {
      bytes = std::max(bytes, layout.blocks * layout.block_stride);
    }
    const uint64_t step =
        Rarely() ? Some(layouts[0].block_stride) : bytes + random_() % 2 * Some(100);
    const bool descends = Rarely();
    const bool irregular = Rarely();
    const bool in_two = Rarely();
    uint64_t at = Some(500);
    for (size_t k = 0; k < layers; ++k) {
      at += step + (irregular && Rarely() ? Some(20) : 0);
      const uint64_t offset = descends ? 60'000 - at : at;
      const uint32_t arena = in_two && k % 3 == 0 ? 1 : 0;
      const wire::BlockLayout& layout = layouts[k];
      side->AddPieces({{arena, offset, layout.blocks * layout.block_stride}}, layout);
    }
  }

  std::vector<uint64_t> Ids(uint64_t count, uint64_t blocks) {
    std::vector<uint64_t> ids(blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    if (!Rarely()) std::shuffle(ids.begin(), ids.end(), random_);
    // Neighbours, so that some runs are long.
    if (Rarely()) std::rotate(ids.begin(), ids.begin() + static_cast<long>(count / 2), ids.end());
    if (Rarely()) std::sort(ids.begin(), ids.begin() + static_cast<long>(count));
    ids.resize(count);
    return ids;
  }

  void CheckRound() {
    Side local(random_, pool_, 2, 1);
    Side remote(random_, pool_, 2, 100);
    const size_t layers = Some(40);
    BlockShape shape;
    if (Rarely()) shape.local_parts = 2;
    const uint64_t unit = Some(9);
    const bool sliced = Rarely();
    if (sliced) {
      shape.slices = {
          {wire::ByteSlice{0, unit * shape.local_parts}, wire::ByteSlice{unit, unit}},
          {wire::ByteSlice{unit * 2, unit * shape.local_parts}, wire::ByteSlice{0, unit}}};
    }
    const uint64_t here = sliced ? unit * 4 : unit * shape.local_parts;
    const uint64_t there = sliced ? unit * 2 : unit;
    const uint64_t gap = Rarely() ? Some(5) : 0;
    const uint64_t blocks = 2 + Some(8);
    const auto layouts = [&](uint64_t bytes, uint64_t count) {
      std::vector<wire::BlockLayout> all(layers, {bytes, bytes + gap, count});
      if (Rarely()) all[layers / 2].block_stride += 1;
      return all;
    };
    AddLayers(&local, layers, layouts(here, blocks));
    AddLayers(&remote, layers, layouts(there, blocks * shape.local_parts));
    const uint64_t count = Some(blocks);
    const auto local_ids = Ids(count, blocks);
    const auto remote_ids = Ids(count * shape.local_parts, blocks * shape.local_parts);
    wire::TransferRequest request;
    request.by_blocks = true;
    request.operation = random_() % 2 == 0 ? wire::Operation::kRead : wire::Operation::kWrite;
    // Some of the layers; two groups of them with the same blocks.
    const size_t first = random_() % layers;
    const auto plan = [&](const RowLimits& rows) {
      PlanInput input = InputOf(request, local, remote);
      input.groups.push_back({first, layers - first, local_ids, remote_ids, &shape, "/groups/0"});
      if (first > 0) {
        input.groups.push_back({0, first, local_ids, remote_ids, &shape, "/groups/1"});
      }
      return Build(std::move(input), {1'000'000, 50, 1'000'000, rows});
    };
    const auto one_by_one = plan({});
    const auto by_rows = plan(kRows);
    ASSERT_EQ(one_by_one.has_value(), by_rows.has_value());
    if (!one_by_one) {
      EXPECT_EQ(one_by_one.error().code, ErrorCode::kOverlap);
      EXPECT_EQ(by_rows.error().code, ErrorCode::kOverlap);
      return;
    }
    EXPECT_EQ(RowSegments(*one_by_one->plan), 0u);
    ASSERT_EQ(BytesOf(*by_rows->plan), BytesOf(*one_by_one->plan));
    EXPECT_EQ(by_rows->plan->bytes, one_by_one->plan->bytes);
    EXPECT_EQ(by_rows->plan->item_order, one_by_one->plan->item_order);
    EXPECT_EQ(by_rows->plan->descriptors_in, one_by_one->plan->descriptors_in);
    EXPECT_EQ(by_rows->descriptors_out, one_by_one->descriptors_out);
    ExpectWithin(*by_rows->plan, kRows);
    with_rows_ += RowSegments(*by_rows->plan) > 0 ? 1 : 0;
    walked_ += 1;
    const auto& segments = by_rows->plan->segments;
    for (size_t i = 0; i < segments.size(); i += Some(20)) {
      EXPECT_EQ((*segments.From(i)).local_offset, segments[i].local_offset);
      EXPECT_EQ((*segments.From(i)).count, segments[i].count);
    }
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  worker::FakeCopyPool pool_;
  int with_rows_ = 0;
  int walked_ = 0;
};

TEST_P(RowPlan, MovesWhatAPlanBlockByBlockMoves) {
  for (int round = 0; round < 80; ++round) {
    CheckRound();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(with_rows_, walked_ / 8) << "of " << walked_;
}

INSTANTIATE_TEST_SUITE_P(Seeds, RowPlan, ::testing::Range(1, 9));

// 20 layers of 16 blocks of 32 bytes, 1000 and 1024 bytes from each other.
class LayersPlan : public ::testing::Test {
 protected:
  LayersPlan() {
    for (uint64_t layer = 0; layer < 20; ++layer) {
      local_.AddPieces({{0, 1000 * layer, 512}}, wire::BlockLayout{32, 32, 16});
      remote_.AddPieces({{0, 64 + 1024 * layer, 512}}, wire::BlockLayout{32, 32, 16});
    }
    request_.by_blocks = true;
  }
  std::shared_ptr<const MovePlan> Plan(const std::vector<uint64_t>& local,
                                       const std::vector<uint64_t>& remote,
                                       const RowLimits& limits) {
    PlanInput input = InputOf(request_, local_, remote_);
    input.groups.push_back({0, local_.buffers_.size(), local, remote, &shape_, ""});
    auto built = Build(std::move(input), {1000, 1 << 20, 1000, limits});
    EXPECT_TRUE(built) << built.error().message;
    return built ? built->plan : nullptr;
  }

  std::mt19937 random_{7};
  worker::FakeCopyPool pool_;
  Side local_{random_, pool_, 2, 1};
  Side remote_{random_, pool_, 2, 100};
  BlockShape shape_;
  wire::TransferRequest request_;
};

TEST_F(LayersPlan, ABlockOfAllLayersIsOneSegment) {
  const auto plan = Plan({3, 9, 1}, {14, 2, 8}, {16, 64, 4096, 4096});
  ASSERT_EQ(plan->segments.size(), 3u);
  const MoveSegment segment = plan->segments[0];  // by local id
  EXPECT_EQ(segment.local_offset, 32u);
  EXPECT_EQ(segment.remote_offset, 64u + 8 * 32);
  EXPECT_EQ(segment.local_stride, 1000u);
  EXPECT_EQ(segment.remote_stride, 1024u);
  EXPECT_EQ(segment.length, 32u);
  EXPECT_EQ(segment.count, 20u);
  EXPECT_EQ(segment.items, 1u);
}

TEST_F(LayersPlan, RowsOfOneCopyHaveNoMoreThanItsBytes) {
  const auto plan = Plan({3, 9, 1}, {14, 2, 8}, {5, 64, 7 * 32, 4096});
  EXPECT_EQ(plan->segments.size(), 3u * 3);  // of 6, 7 and 7 rows
  EXPECT_EQ(BytesOf(*plan), BytesOf(*Plan({3, 9, 1}, {14, 2, 8}, {})));
  // Parts that are shorter than rows_min would be no better than single blocks.
  EXPECT_EQ(RowSegments(*Plan({3}, {14}, {16, 64, 19 * 32, 4096})), 0u);
}

TEST_F(LayersPlan, LongRunsAreCopiesByThemselves) {
  // Runs of four blocks, of two and of one.
  const auto plan = Plan({0, 1, 2, 3, 6, 7, 9}, {4, 5, 6, 7, 0, 1, 15}, {16, 64, 4096, 4096});
  EXPECT_EQ(RowSegments(*plan), 2u);
  EXPECT_EQ(plan->segments.size(), 2u + 20);
  // A step has to hold the run.
  EXPECT_EQ(RowSegments(*Plan({0, 1, 2, 3}, {4, 5, 6, 7}, {16, 2048, 65536, 4096})), 1u);
}

TEST_F(LayersPlan, FewLongRunsAreRowsAmongTheOthers) {
  const RowLimits limits = {16, 32, 4096, 4096, 96};
  // Three blocks of seven.
  const std::vector<uint64_t> local = {0, 1, 2, 4, 6, 8, 10};
  const std::vector<uint64_t> remote = {4, 5, 6, 0, 2, 8, 10};
  const auto plan = Plan(local, remote, limits);
  EXPECT_EQ(RowSegments(*plan), 5u);
  EXPECT_EQ(plan->segments.size(), 5u);
  EXPECT_EQ(BytesOf(*plan), BytesOf(*Plan(local, remote, {})));
  // Without that, and where they are a half.
  EXPECT_EQ(Plan(local, remote, {16, 32, 4096, 4096})->segments.size(), 4u + 20);
  EXPECT_EQ(Plan({0, 1, 2, 4, 6, 8}, {4, 5, 6, 0, 2, 8}, limits)->segments.size(), 3u + 20);
  // Cut where a row may be no longer, or a copy of enough rows has less.
  const struct {
    RowLimits limits;
    uint64_t rows;
  } shorter[] = {{{16, 32, 4096, 4096, 64}, 6}, {{16, 32, 1500, 4096, 96}, 7}};
  for (const auto& [within, rows] : shorter) {
    const auto cut = Plan(local, remote, within);
    EXPECT_EQ(RowSegments(*cut), rows);
    EXPECT_EQ(cut->segments.size(), rows);
    EXPECT_EQ(BytesOf(*cut), BytesOf(*Plan(local, remote, {})));
  }
}

// 20 layers of 64 blocks of 8 bytes, 16 from each other.
TEST_F(LayersPlan, WhereBlocksHaveGapsALongRunIsRowsByItself) {
  Side local(random_, pool_, 2, 1), remote(random_, pool_, 2, 100);
  for (uint64_t layer = 0; layer < 20; ++layer) {
    local.AddPieces({{0, 1024 * layer, 1024}}, wire::BlockLayout{8, 16, 64});
    remote.AddPieces({{0, 64 + 1030 * layer, 1024}}, wire::BlockLayout{8, 16, 64});
  }
  const auto segments = [&](uint64_t run) {
    std::vector<uint64_t> ids(run);
    std::iota(ids.begin(), ids.end(), 0u);
    for (uint64_t id = run + 1; ids.size() <= 2 * run; id += 2) ids.push_back(id);
    PlanInput input = InputOf(request_, local, remote);
    input.groups.push_back({0, 20, ids, ids, &shape_, ""});
    const auto built = Build(std::move(input), {1000, 1 << 20, 1000, {16, 64, 4096, 4096, 256}});
    EXPECT_TRUE(built) << built.error().message;
    return built ? built->plan->segments.size() : 0;
  };
  EXPECT_EQ(segments(15), 15U + 16) << "a batch that the others would wait for";
  EXPECT_EQ(segments(16), 20U + 17);
}

TEST_F(LayersPlan, StepsBeyondTheLimitAndLayersElsewhereAreNoRows) {
  EXPECT_EQ(RowSegments(*Plan({3}, {14}, {16, 64, 4096, 1024})), 1u);
  EXPECT_EQ(RowSegments(*Plan({3}, {14}, {16, 64, 4096, 1023})), 0u);
  local_.AddPieces({{1, 0, 512}}, wire::BlockLayout{32, 32, 16});
  remote_.AddPieces({{0, 64 + 1024 * 20, 512}}, wire::BlockLayout{32, 32, 16});
  const auto plan = Plan({3}, {14}, {16, 64, 4096, 4096});
  EXPECT_EQ(RowSegments(*plan), 1u);
  EXPECT_EQ(plan->segments.size(), 2u);
}

TEST_F(LayersPlan, LayersOfTwoCachesByTurnsAreRowsOfEach) {
  for (uint64_t layer = 0; layer < 20; ++layer) {
    const auto at = static_cast<std::ptrdiff_t>(2 * layer);
    local_.AddPieces({{1, 600 * layer, 512}}, wire::BlockLayout{32, 32, 16});
    remote_.AddPieces({{1, 700 * layer, 512}}, wire::BlockLayout{32, 32, 16});
    for (Side* side : {&local_, &remote_}) {
      std::rotate(side->buffers_.begin() + at + 1, side->buffers_.end() - 1, side->buffers_.end());
    }
  }
  const auto plan = Plan({3, 9}, {14, 2}, {16, 64, 4096, 4096});
  EXPECT_EQ(plan->segments.size(), 4u);
  EXPECT_EQ(plan->segments.copies().rows, 80u);
}

TEST_F(LayersPlan, AListMayGoBackwardsThroughBothCaches) {
  for (Side* side : {&local_, &remote_}) {
    std::reverse(side->buffers_.begin(), side->buffers_.end());
  }
  const auto plan = Plan({3, 9}, {14, 2}, {16, 64, 4096, 4096});
  EXPECT_EQ(plan->segments.size(), 2u);
  EXPECT_EQ(BytesOf(*plan), BytesOf(*Plan({3, 9}, {14, 2}, {})));
}

TEST_F(LayersPlan, RowsThatMeetNameTheItem) {
  // The last local layer begins inside of the one before it.
  local_.AddPieces({{0, 1000 * 18 + 80, 512}}, wire::BlockLayout{32, 32, 16});
  remote_.AddPieces({{1, 0, 512}}, wire::BlockLayout{32, 32, 16});
  const std::vector<uint64_t> ids = {5, 1, 3};
  const auto refusal = [&](const RowLimits& limits) {
    PlanInput input = InputOf(request_, local_, remote_);
    input.groups.push_back({0, local_.buffers_.size(), ids, ids, &shape_, ""});
    const auto built = Build(std::move(input), {1000, 1 << 20, 1000, limits});
    return built ? "planned" : built.error().message + " " + built.error().field;
  };
  const std::string refused = refusal({16, 64, 4096, 4096});
  EXPECT_NE(refused.find("shares bytes"), std::string::npos) << refused;
  EXPECT_EQ(refused, refusal({}));
}

}  // namespace
}  // namespace gantry::engine
