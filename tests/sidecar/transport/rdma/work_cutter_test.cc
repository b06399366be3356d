#include "sidecar/transport/rdma/work_cutter.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <string>

#include "tests/sidecar/transport/rdma/random_stretches.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kGiB = 1 << 30;
// Where a device's limit is odd, its seams lie on no multiple of anything.
constexpr uint64_t kOddChunk = 64 * kMiB - 512 * 1024 + 1;

struct MovedByte {
  uint64_t local_address = 0;
  uint64_t remote_address = 0;
  uint32_t local_region = 0;
  uint32_t remote_chunk = 0;
  uint32_t first_item = 0;
  uint32_t items_end = 0;
};

// The plan byte by byte, as its segments are documented.
std::vector<MovedByte> BytesOf(const MovePlan& plan, const TwoSides& sides) {
  std::vector<MovedByte> bytes;
  for (const MoveSegment& segment : plan.segments) {
    const bool one_item_each = segment.count > 1 && !segment.by_rows;
    for (uint64_t block = 0; block < segment.count; ++block) {
      for (uint64_t i = 0; i < segment.length; ++i) {
        const uint64_t local_at = segment.local_offset + block * segment.local_stride + i;
        const uint64_t remote_at = segment.remote_offset + block * segment.remote_stride + i;
        const Regions::Run local = sides.local.At(segment.local_allocation, local_at);
        const Regions::Run remote = sides.remote.At(segment.remote_allocation, remote_at);
        const auto first =
            segment.first_item + static_cast<uint32_t>(one_item_each ? block : uint64_t{0});
        bytes.push_back({local.address, remote.address, local.region, remote.region, first,
                         one_item_each ? first + 1 : first + segment.items});
      }
    }
  }
  return bytes;
}

// The fewest work requests that move these bytes in their order.
std::vector<WorkRequest> Fewest(const std::vector<MovedByte>& bytes, uint64_t bytes_max) {
  std::vector<WorkRequest> requests;
  for (const MovedByte& byte : bytes) {
    if (!requests.empty()) {
      WorkRequest& last = requests.back();
      const uint32_t items_end = last.first_item + last.items;
      if (last.length < bytes_max && last.local_address + last.length == byte.local_address &&
          last.remote_address + last.length == byte.remote_address &&
          last.local_region == byte.local_region && last.remote_chunk == byte.remote_chunk &&
          byte.first_item <= items_end && byte.items_end >= last.first_item) {
        ++last.length;
        last.first_item = std::min(last.first_item, byte.first_item);
        last.items = std::max(items_end, byte.items_end) - last.first_item;
        continue;
      }
    }
    requests.push_back({byte.local_address, byte.remote_address, byte.local_region,
                        byte.remote_chunk, 1, byte.first_item, byte.items_end - byte.first_item});
  }
  return requests;
}

std::vector<WorkRequest> Cut(const MovePlan& plan, const Stretches& stretches, uint64_t bytes_max) {
  std::vector<WorkRequest> requests;
  WorkCutter cutter(plan, stretches, bytes_max);
  WorkRequest request;
  for (;;) {
    const auto more = cutter.Next(&request);
    EXPECT_TRUE(more) << more.error().message;
    if (!more || !*more) break;
    requests.push_back(request);
  }
  EXPECT_TRUE(cutter.ItemsLeft().empty());
  return requests;
}

void ExpectEqual(const WorkRequest& a, const WorkRequest& b, size_t index) {
  SCOPED_TRACE("work request " + std::to_string(index));
  ASSERT_EQ(a.local_address, b.local_address);
  ASSERT_EQ(a.remote_address, b.remote_address);
  ASSERT_EQ(a.local_region, b.local_region);
  ASSERT_EQ(a.remote_chunk, b.remote_chunk);
  ASSERT_EQ(a.length, b.length);
  ASSERT_EQ(a.first_item, b.first_item);
  ASSERT_EQ(a.items, b.items);
}

// A segment of one block, or of more with `count` and the strides set by the caller.
MoveSegment Segment(uint64_t local, uint64_t remote, uint64_t length, uint32_t first_item = 0) {
  MoveSegment segment;
  segment.local_offset = local;
  segment.remote_offset = remote;
  segment.length = length;
  segment.first_item = first_item;
  return segment;
}

MovePlan PlanOf(const std::vector<MoveSegment>& segments) {
  MovePlan plan;
  for (const MoveSegment& segment : segments) plan.segments.push_back(segment);
  return plan;
}

class RandomPlan {
 public:
  static constexpr uint32_t kAllocations = 3;
  static constexpr uint64_t kBytes = 3000;  // of each allocation

  explicit RandomPlan(std::mt19937_64* random) : random_(*random) {
    for (int i = 0; i < 8; ++i) AddSegment();
    for (uint64_t i = Below(3); i > 0; --i) AddRuns();
  }
  const MovePlan& plan() const { return plan_; }

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }

  void AddSegment() {
    MoveSegment segment;
    segment.length = 1 + Below(60);
    segment.count = static_cast<uint32_t>(Below(2) == 0 ? 1 : 1 + Below(8));
    segment.local_stride = segment.length + (Below(2) == 0 ? 0 : Below(40));
    segment.remote_stride = Below(2) == 0 ? segment.local_stride : segment.length + Below(40);
    segment.local_allocation = static_cast<uint32_t>(Below(kAllocations));
    segment.remote_allocation = static_cast<uint32_t>(Below(kAllocations));
    segment.local_offset = Below(kBytes - 1000);
    segment.remote_offset = Below(kBytes - 1000);
    if (Below(2) == 0) Continue(&segment);
    segment.by_rows = segment.count > 1 && Below(2) == 0;
    segment.items =
        segment.by_rows || segment.count == 1 ? static_cast<uint32_t>(1 + Below(3)) : segment.count;
    segment.first_item = Below(4) == 0 ? static_cast<uint32_t>(Below(50)) : items_end_;
    items_end_ = segment.first_item + segment.items;
    last_ = segment;
    plan_.segments.push_back(segment);
  }
  // Where the last one ends, on both sides; or from one allocation to the beginning of the next.
  void Continue(MoveSegment* segment) const {
    const uint64_t blocks = last_.count - 1;
    const uint64_t local_end = last_.local_offset + blocks * last_.local_stride + last_.length;
    const uint64_t remote_end = last_.remote_offset + blocks * last_.remote_stride + last_.length;
    if (local_end > kBytes - 1000 || remote_end > kBytes - 1000) return;
    segment->local_allocation = last_.local_allocation;
    segment->remote_allocation = last_.remote_allocation;
    segment->local_offset = local_end;
    segment->remote_offset = remote_end;
  }

  void AddRuns() {
    std::vector<BlockPair> pairs;
    for (uint64_t i = 1 + Below(3); i > 0; --i) {
      BlockPair pair;
      pair.local_allocation = static_cast<uint32_t>(Below(kAllocations));
      pair.remote_allocation = static_cast<uint32_t>(Below(kAllocations));
      pair.unit_bytes = 16;
      pair.local_base = Below(100);
      pair.remote_base = Below(100);
      pair.local_stride = Below(2) == 0 ? 16 : 32;
      pair.remote_stride = 16;
      if (pair.is_dense() && Below(2) == 0) {
        pair.rows = 3;
        pair.local_row_step = 256 + Below(20);
        pair.remote_row_step = 256;
      }
      pairs.push_back(pair);
    }
    std::vector<BlockRun> runs;
    for (uint32_t i = static_cast<uint32_t>(1 + Below(5)); i > 0; --i) {
      const auto count = static_cast<uint32_t>(1 + Below(4));
      runs.push_back(
          {static_cast<uint32_t>(Below(20)), static_cast<uint32_t>(Below(20)), count, items_end_});
      if (runs.size() > 1 && Below(2) == 0) {  // as block ids that follow each other
        const BlockRun& before = runs[runs.size() - 2];
        runs.back().local_unit = before.local_unit + before.count;
        runs.back().remote_unit = before.remote_unit + before.count;
      }
      items_end_ += count;
    }
    plan_.segments.AddRuns(std::move(pairs), std::move(runs));
  }

  std::mt19937_64& random_;
  MovePlan plan_;
  MoveSegment last_;
  uint32_t items_end_ = 0;
};

// Every byte of the plan exactly once and in order, none across a seam, none above the limit, and
// as few work requests as that leaves.
TEST(WorkCutter, MovesWhatTheReferenceMovesByteByByte) {
  size_t merged_over_segments = 0;
  size_t cut = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    TwoSides sides;
    sides.local.AddRandom(&random, RandomPlan::kAllocations, RandomPlan::kBytes, 1 + seed % 90);
    sides.remote.AddRandom(&random, RandomPlan::kAllocations, RandomPlan::kBytes, 1 + seed % 40);
    const RandomPlan random_plan(&random);
    const MovePlan& plan = random_plan.plan();
    const uint64_t bytes_max = seed % 2 == 0 ? kMiB : 1 + random() % 100;

    const auto expected = Fewest(BytesOf(plan, sides), bytes_max);
    const auto requests = Cut(plan, sides, bytes_max);
    ASSERT_EQ(requests.size(), expected.size());
    uint64_t blocks = 0;
    for (const MoveSegment& segment : plan.segments) blocks += segment.count;
    (requests.size() < blocks ? merged_over_segments : cut) += 1;
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectEqual(requests[i], expected[i], i);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(merged_over_segments, 100U) << "the plans merge too little to tell anything";
  EXPECT_GT(cut, 100U);
}

// One flat buffer a side, in chunks of so many bytes.
class EvenChunks : public Stretches {
 public:
  EvenChunks(uint64_t local_bytes, uint64_t remote_bytes)
      : local_bytes_(local_bytes), remote_bytes_(remote_bytes) {}
  LocalStretch Local(uint32_t, uint64_t offset) const override {
    return {kLocalBase + offset, static_cast<uint32_t>(offset / local_bytes_),
            local_bytes_ - offset % local_bytes_};
  }
  RemoteStretch Remote(uint32_t, uint64_t offset) const override {
    return {kRemoteBase + offset, static_cast<uint32_t>(offset / remote_bytes_),
            remote_bytes_ - offset % remote_bytes_};
  }

  static constexpr uint64_t kLocalBase = uint64_t{1} << 46;
  static constexpr uint64_t kRemoteBase = uint64_t{3} << 45;

 private:
  const uint64_t local_bytes_;
  const uint64_t remote_bytes_;
};

void ExpectWithinChunks(const std::vector<WorkRequest>& requests, uint64_t local_chunk,
                        uint64_t remote_chunk) {
  for (const WorkRequest& request : requests) {
    const uint64_t local = request.local_address - EvenChunks::kLocalBase;
    const uint64_t remote = request.remote_address - EvenChunks::kRemoteBase;
    EXPECT_EQ(local / local_chunk, request.local_region);
    EXPECT_EQ((local + request.length - 1) / local_chunk, request.local_region);
    EXPECT_EQ(remote / remote_chunk, request.remote_chunk);
    EXPECT_EQ((remote + request.length - 1) / remote_chunk, request.remote_chunk);
  }
}

TEST(WorkCutter, CutsAtTheOddSeamsOfBothSides) {
  const EvenChunks stretches(kOddChunk, kOddChunk);
  // From other places in the chunks: the two sides' seams are crossed at different bytes.
  const auto requests = Cut(PlanOf({Segment(1000, 5 * kMiB, kGiB)}), stretches, 0);
  const uint64_t local_seams = (1000 + kGiB - 1) / kOddChunk;
  const uint64_t remote_seams = (5 * kMiB + kGiB - 1) / kOddChunk - 5 * kMiB / kOddChunk;
  EXPECT_EQ(requests.size(), local_seams + remote_seams + 1);
  ExpectWithinChunks(requests, kOddChunk, kOddChunk);
  EXPECT_EQ(requests[0].length, kOddChunk - 5 * kMiB);
  EXPECT_EQ(requests[1].length, 5 * kMiB - 1000);
}

TEST(WorkCutter, CutsOnceWhereBothSidesHaveTheirSeam) {
  const EvenChunks stretches(kOddChunk, kOddChunk);
  const auto requests = Cut(PlanOf({Segment(kOddChunk - 1, 3 * kOddChunk - 1, 2)}), stretches, 0);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].length, 1U);
  EXPECT_EQ(requests[0].local_region, 0U);
  EXPECT_EQ(requests[1].local_region, 1U);
  EXPECT_EQ(requests[1].remote_chunk, 3U);
}

TEST(WorkCutter, BlocksThatStraddleSeamsOfEitherSideAreCutThere) {
  const EvenChunks stretches(kOddChunk, kOddChunk + 4096);
  MoveSegment segment = Segment(0, kMiB, 64 * 1024);
  segment.count = segment.items = 10'000;
  segment.local_stride = 128 * 1024;
  segment.remote_stride = 64 * 1024;
  const auto requests = Cut(PlanOf({segment}), stretches, kMiB);
  ExpectWithinChunks(requests, kOddChunk, kOddChunk + 4096);
  EXPECT_GT(requests.size(), 10'000U);
  uint64_t bytes = 0;
  for (const WorkRequest& request : requests) {
    const uint64_t block = (request.local_address - EvenChunks::kLocalBase) / (128 * 1024);
    EXPECT_EQ(request.first_item, block);
    EXPECT_EQ(request.items, 1U);
    bytes += request.length;
  }
  EXPECT_EQ(bytes, segment.bytes());
}

TEST(WorkCutter, ContiguousBlocksOfManySegmentsAreOneWorkRequest) {
  std::vector<MoveSegment> segments;
  for (uint32_t i = 0; i < 100; ++i) segments.push_back(Segment(i * 4096, i * 4096, 4096, i));
  const EvenChunks stretches(kGiB, kGiB);
  const auto requests = Cut(PlanOf(segments), stretches, kMiB);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].length, 100U * 4096);
  EXPECT_EQ(requests[0].items, 100U);
  EXPECT_EQ(Cut(PlanOf(segments), stretches, 40 * 4096).size(), 3U);
  std::swap(segments[50], segments[51]);
  EXPECT_EQ(Cut(PlanOf(segments), stretches, kMiB).size(), 4U);
}

TEST(WorkCutter, ItemsThatDoNotFollowEachOtherStayApart) {
  const EvenChunks stretches(kGiB, kGiB);
  const auto apart =
      Cut(PlanOf({Segment(0, 0, 4096, 3), Segment(4096, 4096, 4096, 5)}), stretches, 0);
  EXPECT_EQ(apart.size(), 2U) << "item 4 would be blamed for both";
  const auto backwards =
      Cut(PlanOf({Segment(0, 0, 4096, 3), Segment(4096, 4096, 4096, 2)}), stretches, 0);
  ASSERT_EQ(backwards.size(), 1U);
  EXPECT_EQ(backwards[0].first_item, 2U);
  EXPECT_EQ(backwards[0].items, 2U);
}

TEST(WorkCutter, NoMessageIsLongerThanAQueuePairTakes) {
  const EvenChunks stretches(uint64_t{1} << 40, uint64_t{1} << 40);
  for (const uint64_t bytes_max : {uint64_t{0}, uint64_t{1} << 33, kWorkRequestBytesMax}) {
    const auto requests = Cut(PlanOf({Segment(0, 0, 5 * kGiB)}), stretches, bytes_max);
    ASSERT_EQ(requests.size(), 3U);
    EXPECT_EQ(requests[0].length, kWorkRequestBytesMax);
    EXPECT_EQ(requests[2].length, kGiB);
  }
}

TEST(WorkCutter, EmptyPlansAndEmptySegmentsHaveNoWork) {
  const EvenChunks stretches(kGiB, kGiB);
  EXPECT_TRUE(Cut(MovePlan(), stretches, 0).empty());
  MoveSegment none = Segment(0, 0, 4096);
  none.count = 0;
  EXPECT_EQ(Cut(PlanOf({none, Segment(0, 0, 0), Segment(8, 8, 8), none}), stretches, 0).size(), 1U);
}

// What no memory region has is named, on either side; what came before it is cut all the same.
TEST(WorkCutter, NamesTheByteThatNoMemoryRegionHas) {
  for (const bool local : {true, false}) {
    TwoSides sides;
    (local ? sides.local : sides.remote).Add({2, 0, 6000, 1 << 20, 1});
    (local ? sides.remote : sides.local).Add({2, 0, 1 << 20, 2 << 20, 1});
    MoveSegment segment = Segment(0, 0, 4096, 7);
    segment.local_allocation = segment.remote_allocation = 2;
    segment.local_stride = segment.remote_stride = 4096;
    segment.count = segment.items = 3;
    const MovePlan plan = PlanOf({segment});
    WorkCutter cutter(plan, sides, 0);
    WorkRequest request;
    ASSERT_TRUE(*cutter.Next(&request));
    EXPECT_EQ(request.length, 6000U);
    EXPECT_EQ(request.items, 2U);
    EXPECT_EQ(cutter.ItemsLeft(), (std::vector<uint32_t>{8, 9}));
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto more = cutter.Next(&request);
      ASSERT_FALSE(more);
      EXPECT_EQ(more.error().code, ErrorCode::kUnregistered);
      EXPECT_NE(more.error().message.find("byte 6000 of " + std::string(local ? "local" : "the")),
                std::string::npos)
          << more.error().message;
      EXPECT_NE(more.error().message.find("allocation 2 "), std::string::npos);
    }
  }
}

TEST(WorkCutter, ItemsLeftAreThoseNotWhollyCut) {
  const EvenChunks stretches(kGiB, kGiB);
  std::vector<MoveSegment> segments;
  for (uint32_t i = 0; i < 5; ++i) {
    segments.push_back(Segment(uint64_t{i} * 100'000, 0, 8192, (i * 3) % 5));
  }
  const MovePlan plan = PlanOf(segments);
  WorkCutter cutter(plan, stretches, 4096);
  EXPECT_EQ(cutter.ItemsLeft(), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  WorkRequest request;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*cutter.Next(&request));
  EXPECT_EQ(cutter.ItemsLeft(), (std::vector<uint32_t>{1, 2, 3, 4})) << "half of item 3 is left";
  ASSERT_TRUE(*cutter.Next(&request));
  EXPECT_EQ(cutter.ItemsLeft(), (std::vector<uint32_t>{1, 2, 4}));
}

}  // namespace
}  // namespace gantry::transport
