#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "sidecar/plan/plan_builder.h"
#include "tests/sidecar/plan/plan_sides.h"

namespace gantry::engine {
namespace {

using wire::Operation;

// A group of a random transfer, and what it asks for.
struct Group {
  BlockShape shape;
  size_t first_pair = 0;
  size_t pairs = 0;
  std::vector<uint64_t> local_blocks;
  std::vector<uint64_t> remote_blocks;
};

class ViewPlan : public ::testing::TestWithParam<int> {
 protected:
  uint64_t Some(uint64_t most) { return 1 + random_() % most; }

  // Slices of a block of `blocks_of` parts of `unit` bytes each, one after the other with gaps.
  std::vector<wire::ByteSlice> Slices(const std::vector<uint64_t>& units, uint32_t parts,
                                      uint64_t* block_bytes) {
    std::vector<wire::ByteSlice> slices;
    uint64_t at = random_() % 20;
    for (const uint64_t unit : units) {
      slices.push_back({at, unit * parts});
      at += unit * parts + random_() % 3 * (random_() % 30);
    }
    *block_bytes = at + random_() % 20;
    return slices;
  }

  Group MakeGroup(Side* local, Side* remote, size_t first_pair) {
    Group group;
    group.first_pair = first_pair;
    group.pairs = Some(2);
    switch (random_() % 3) {
      case 0:
        group.shape.local_parts = static_cast<uint32_t>(1 + Some(4));
        break;
      case 1:
        group.shape.remote_parts = static_cast<uint32_t>(1 + Some(4));
        break;
      default:
        break;
    }
    std::vector<uint64_t> units(Some(3));
    for (uint64_t& unit : units) unit = Some(40);
    uint64_t local_bytes = 0;
    uint64_t remote_bytes = 0;
    const bool whole = random_() % 3 == 0;  // dense blocks of one slice, which merge
    if (whole) {
      units.resize(1);
      local_bytes = units[0] * group.shape.local_parts;
      remote_bytes = units[0] * group.shape.remote_parts;
    } else {
      const auto here = Slices(units, group.shape.local_parts, &local_bytes);
      const auto there = Slices(units, group.shape.remote_parts, &remote_bytes);
      group.shape.slices.clear();
      for (size_t i = 0; i < units.size(); ++i) group.shape.slices.push_back({here[i], there[i]});
    }
    const uint64_t blocks = 2 + random_() % 6;
    for (size_t k = 0; k < group.pairs; ++k) {
      const uint64_t gap = random_() % 2 * (random_() % 9);
      AddBuffer(local, local_bytes, local_bytes + gap, blocks * group.shape.remote_parts);
      AddBuffer(remote, remote_bytes, remote_bytes + random_() % 2 * (random_() % 9),
                blocks * group.shape.local_parts);
    }
    group.local_blocks = Ids(blocks * group.shape.remote_parts);
    group.remote_blocks = Ids(blocks * group.shape.local_parts);
    // The longer list says how many there are.
    const bool more_local = group.shape.remote_parts > 1;
    auto& longer = more_local ? group.local_blocks : group.remote_blocks;
    auto& shorter = more_local ? group.remote_blocks : group.local_blocks;
    const uint32_t parts = std::max(group.shape.local_parts, group.shape.remote_parts);
    longer.resize(Some(longer.size()));
    shorter.resize((longer.size() + parts - 1) / parts);
    return group;
  }

  void AddBuffer(Side* side, uint64_t block, uint64_t stride, uint64_t blocks) {
    side->AddBuffer(stride * blocks, wire::BlockLayout{block, stride, blocks}, random_() % 3 != 0);
  }

  std::vector<uint64_t> Ids(uint64_t blocks) {
    std::vector<uint64_t> ids(blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    if (random_() % 3 != 0) std::shuffle(ids.begin(), ids.end(), random_);
    if (random_() % 4 == 0) std::reverse(ids.begin(), ids.end());
    return ids;
  }

  // The bytes that the group moves, one block after the other as the view says.
  template <typename Copy>
  static void Model(const Group& group, const Side& local, const Side& remote, const Copy& copy) {
    const uint32_t local_parts = group.shape.local_parts;
    const uint32_t remote_parts = group.shape.remote_parts;
    const size_t items = std::max(group.local_blocks.size(), group.remote_blocks.size());
    for (size_t k = group.first_pair; k < group.first_pair + group.pairs; ++k) {
      const wire::BlockLayout& here = *local.buffers_[k].layout;
      const wire::BlockLayout& there = *remote.buffers_[k].layout;
      for (const wire::BlockSlice& slice : group.shape.slices) {
        const auto from = slice.local.value_or(wire::ByteSlice{0, here.block_bytes});
        const auto to = slice.remote.value_or(wire::ByteSlice{0, there.block_bytes});
        const uint64_t unit = from.length / local_parts;
        for (size_t i = 0; i < items; ++i) {
          copy(k,
               group.local_blocks[i / local_parts] * here.block_stride + from.offset +
                   i % local_parts * unit,
               group.remote_blocks[i / remote_parts] * there.block_stride + to.offset +
                   i % remote_parts * unit,
               unit);
        }
      }
    }
  }

  // The request's items by local block, and how many pieces they come to: one pair after the other
  // as a list, without any of the planner's short cuts.
  static std::vector<uint32_t> OrderOf(const Group& group) {
    const uint32_t parts = group.shape.local_parts;
    std::vector<uint32_t> order(std::max(group.local_blocks.size(), group.remote_blocks.size()));
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return group.local_blocks[a / parts] < group.local_blocks[b / parts];
    });
    return order;
  }
  static uint64_t RunsOf(const Group& group, const Side& local, const Side& remote) {
    const uint32_t parts[] = {group.shape.local_parts, group.shape.remote_parts};
    // Whether the parts of one block go on in the next, on each side.
    bool joins[] = {true, true};
    for (size_t k = group.first_pair; k < group.first_pair + group.pairs; ++k) {
      for (const wire::BlockSlice& slice : group.shape.slices) {
        const wire::BlockLayout& here = *local.buffers_[k].layout;
        const wire::BlockLayout& there = *remote.buffers_[k].layout;
        const auto from = slice.local.value_or(wire::ByteSlice{0, here.block_bytes});
        const auto to = slice.remote.value_or(wire::ByteSlice{0, there.block_bytes});
        joins[0] &= parts[0] == 1 || from.length == here.block_stride;
        joins[1] &= parts[1] == 1 || to.length == there.block_stride;
      }
    }
    uint64_t runs = 0;
    std::optional<std::pair<uint64_t, uint64_t>> last;
    for (const uint32_t item : OrderOf(group)) {
      const std::pair next = {group.local_blocks[item / parts[0]] * parts[0] + item % parts[0],
                              group.remote_blocks[item / parts[1]] * parts[1] + item % parts[1]};
      const bool follows =
          last && next.first == last->first + 1 && next.second == last->second + 1 &&
          (joins[0] || next.first % parts[0] != 0) && (joins[1] || next.second % parts[1] != 0);
      runs += follows ? 0 : 1;
      last = next;
    }
    return runs * group.pairs * group.shape.slices.size();
  }

  void CheckRound() {
    Side local(random_, pool_, 3, 1);
    Side remote(random_, pool_, 2, 100);
    wire::TransferRequest request;
    request.operation = random_() % 2 == 0 ? Operation::kRead : Operation::kWrite;
    request.by_blocks = true;
    std::vector<Group> groups;
    for (uint64_t n = Some(3); groups.size() < n;) {
      groups.push_back(MakeGroup(&local, &remote, local.buffers_.size()));
    }
    PlanInput input = InputOf(request, local, remote);
    uint64_t items = 0;
    for (const Group& group : groups) {
      input.groups.push_back({group.first_pair, group.pairs, group.local_blocks,
                              group.remote_blocks, &group.shape, "/groups/0"});
      items += std::max(group.local_blocks.size(), group.remote_blocks.size());
    }
    const uint64_t chunk_bytes_max = Some(600);
    auto built = Build(std::move(input), {1'000'000, chunk_bytes_max});
    ASSERT_TRUE(built) << built.error().message << " " << built.error().field;
    const bool read = request.operation == Operation::kRead;
    const auto before_local = Bytes(local);
    const auto before_remote = Bytes(remote);
    uint64_t bytes = 0;
    for (const Group& group : groups) {
      Model(group, local, remote, [&](size_t k, uint64_t here, uint64_t there, uint64_t length) {
        for (uint64_t i = 0; i < length; ++i) {
          (read ? *local.At(k, here + i) : *remote.At(k, there + i)) =
              read ? *remote.At(k, there + i) : *local.At(k, here + i);
        }
        bytes += length;
      });
    }
    const auto expected_local = Bytes(local);
    const auto expected_remote = Bytes(remote);
    SetBytes(local, before_local);
    SetBytes(remote, before_remote);
    Execute(*built->plan, local, remote);
    ASSERT_EQ(Bytes(local), expected_local);
    ASSERT_EQ(Bytes(remote), expected_remote);
    EXPECT_EQ(built->plan->bytes, bytes);
    std::vector<uint32_t> order;
    uint64_t runs = 0;
    for (const Group& group : groups) {
      const auto first = static_cast<uint32_t>(order.size());
      for (const uint32_t item : OrderOf(group)) order.push_back(first + item);
      runs += RunsOf(group, local, remote);
    }
    ASSERT_EQ(order.size(), items);
    EXPECT_EQ(built->plan->item_order, order);
    EXPECT_EQ(built->descriptors_out, runs);
    uint64_t segment_bytes = 0;
    for (const transport::MoveSegment& segment : built->plan->segments) {
      EXPECT_LE(segment.bytes(), chunk_bytes_max);
      EXPECT_LE(segment.first_item + segment.items, items);
      segment_bytes += segment.bytes();
    }
    EXPECT_EQ(segment_bytes, bytes);
  }

  std::mt19937 random_{static_cast<unsigned>(GetParam())};
  worker::FakeCopyPool pool_;
};

TEST_P(ViewPlan, SlicesPartsAndGroupsLandWhereTheViewSays) {
  for (int round = 0; round < 60; ++round) {
    CheckRound();
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ViewPlan, ::testing::Range(1, 9));

// One local block of 64 bytes is two remote ones.
class RatioPlan : public ::testing::Test {
 protected:
  RatioPlan() {
    local_.AddBuffer(1024, wire::BlockLayout{64, 64, 16}, true);
    remote_.AddBuffer(1024, wire::BlockLayout{32, 32, 32}, true);
    shape_.local_parts = 2;
    request_.by_blocks = true;
  }

  Result<BuiltPlan> Plan(const std::vector<uint64_t>& local, const std::vector<uint64_t>& remote) {
    PlanInput input = InputOf(request_, local_, remote_);
    input.groups.push_back({0, 1, local, remote, &shape_, ""});
    return Build(std::move(input), {});
  }
  std::string Refused(const std::vector<uint64_t>& local, const std::vector<uint64_t>& remote) {
    const auto built = Plan(local, remote);
    if (built) return "planned";
    return std::string(InfoOf(built.error().code).name) + " " + built.error().field;
  }

  std::mt19937 random_{7};
  worker::FakeCopyPool pool_;
  Side local_{random_, pool_, 1, 1};
  Side remote_{random_, pool_, 1, 2};
  BlockShape shape_;
  wire::TransferRequest request_;
};

TEST_F(RatioPlan, NeighboursMergeOverBlocks) {
  const auto built = Plan({3, 4}, {8, 9, 10, 11});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->descriptors_out, 1u);
  EXPECT_EQ(built->plan->segments[0].length, 128u);
  EXPECT_EQ(
      built->plan->segments[0].local_offset - local_.buffers_[0].pieces->Locate(192, 1).offset, 0u);
}

TEST_F(RatioPlan, ListsAreInProportion) {
  EXPECT_EQ(Refused({1}, {1, 2}), "planned");
  EXPECT_EQ(Refused({1, 2}, {1, 2, 3}), "planned");
  EXPECT_EQ(Refused({1, 2}, {1, 2}), "invalid_argument /remote_blocks");
  EXPECT_EQ(Refused({1}, {1, 2, 3}), "invalid_argument /remote_blocks");
  EXPECT_EQ(Refused({1, 2, 3}, {1, 2}), "invalid_argument /remote_blocks");
  EXPECT_EQ(Refused({}, {}), "planned");
}

TEST_F(RatioPlan, NamesTheBlockThatIsWrong) {
  EXPECT_EQ(Refused({1, 16}, {1, 2, 3, 4}), "out_of_range /local_blocks/1");
  EXPECT_EQ(Refused({1, 2}, {1, 2, 32, 4}), "out_of_range /remote_blocks/2");
  EXPECT_EQ(Refused({1, 1}, {1, 2, 3, 4}), "overlap /local_blocks/1");
  EXPECT_EQ(Refused({1, 2}, {1, 1, 3, 3}), "planned") << "a source may be read twice";
  request_.operation = Operation::kWrite;
  EXPECT_EQ(Refused({1, 2}, {1, 2, 3, 2}), "overlap /remote_blocks/3");
}

TEST_F(RatioPlan, SlicesMayOverlapOnlyWhereTheyAreRead) {
  shape_.local_parts = 1;
  shape_.slices = {{wire::ByteSlice{0, 16}, wire::ByteSlice{0, 16}},
                   {wire::ByteSlice{16, 16}, wire::ByteSlice{8, 16}}};
  EXPECT_EQ(Refused({1, 2}, {1, 2}), "planned");
  request_.operation = Operation::kWrite;
  EXPECT_EQ(Refused({1, 2}, {1, 2}), "overlap /view");
}

TEST_F(RatioPlan, ABufferInTwoGroupsIsADestinationOnlyOnceAtEachByte) {
  local_.buffers_.push_back(local_.buffers_[0]);
  remote_.buffers_.push_back(remote_.buffers_[0]);
  const BlockShape low = {{{wire::ByteSlice{0, 32}, std::nullopt}}, 1, 1};
  const BlockShape high = {{{wire::ByteSlice{32, 32}, std::nullopt}}, 1, 1};
  const std::vector<uint64_t> ids = {4};
  for (const BlockShape* second : {&high, &low}) {
    PlanInput input = InputOf(request_, local_, remote_);
    input.groups.push_back({0, 1, ids, ids, &low, "/groups/0"});
    input.groups.push_back({1, 1, ids, ids, second, "/groups/1"});
    const auto built = Build(std::move(input), {});
    ASSERT_EQ(built.has_value(), second == &high);
    if (built) continue;
    EXPECT_EQ(built.error().code, ErrorCode::kOverlap);
    EXPECT_EQ(built.error().field, "/groups/1/local_blocks/0");
  }
}

// Where bytes collide, the item of the longer list is named by its block in the destination's list.
TEST_F(RatioPlan, ACollisionNamesTheDestinationsBlock) {
  local_.buffers_.push_back(local_.buffers_[0]);
  remote_.AddBuffer(1024, wire::BlockLayout{32, 32, 32}, true);
  const std::vector<uint64_t> first = {7};
  const std::vector<uint64_t> local = {4, 7};
  const std::vector<uint64_t> remote = {1, 2, 3};
  PlanInput input = InputOf(request_, local_, remote_);
  input.groups.push_back({0, 1, first, first, &shape_, "/groups/0"});
  input.groups.push_back({1, 1, local, remote, &shape_, "/groups/1"});
  const auto built = Build(std::move(input), {});
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kOverlap);
  EXPECT_EQ(built.error().field, "/groups/1/local_blocks/1") << "item 3 of all, 2 of the group";
}

// 512 ids of 64 pairs are kept as runs: the plan takes the memory of the ids, not of 32 768.
TEST_F(RatioPlan, PairsShareTheirRuns) {
  SegmentBudget budget(4096);
  SegmentReservation reservation(budget);
  for (int i = 0; i < 63; ++i) {
    local_.buffers_.push_back(local_.buffers_[0]);
    remote_.buffers_.push_back(remote_.buffers_[0]);
  }
  shape_.local_parts = 1;
  shape_.slices = {{wire::ByteSlice{0, 8}, wire::ByteSlice{8, 8}}};
  std::vector<uint64_t> ids = {0, 2, 4, 6, 8, 10, 12, 14};
  PlanInput input = InputOf(request_, local_, remote_);
  input.groups.push_back({0, 64, ids, ids, &shape_, ""});
  input.request = &request_;
  // The same buffer 64 times is refused, after it was planned in this budget.
  const auto built = BuildPlan(std::move(input), {}, &reservation);
  ASSERT_FALSE(built);
  EXPECT_EQ(built.error().code, ErrorCode::kOverlap);
  EXPECT_EQ(budget.reserved(), 1024u) << "one step";
}

}  // namespace
}  // namespace gantry::engine
