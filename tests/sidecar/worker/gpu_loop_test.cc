// What a worker copies between GPUs, in which order it says so, and what stays mapped meanwhile.
#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

TEST_P(GpuLoopTest, ListedBlocksArriveAndTheirNeighboursStay) {
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < 1000; ++i) places.push_back({i * 2000 + 1, (999 - i) * 2000 + 37});
  CopySegment segment = Plain(0, 0, 777);
  segment.places = places;
  segment.count = static_cast<uint32_t>(places.size());
  Post(5, {segment});
  const Completion done = Await();
  EXPECT_EQ(done.tag, 5U);
  EXPECT_TRUE(done.ok);
  EXPECT_EQ(done.means, GetParam());
  EXPECT_GT(done.copy_nanoseconds, 0U);
  ExpectMoved(places, 777);
}

TEST_P(GpuLoopTest, StridedBlocksOfMoreThanAllListsOfAKernelArrive) {
  constexpr uint32_t kBlocks = 120'000;
  CopySegment segment = Plain(3, 5, 10);
  segment.source_stride = 16;
  segment.destination_stride = 14;
  segment.count = kBlocks;
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < kBlocks; ++i) places.push_back({3 + 16 * i, 5 + 14 * i});
  for (uint64_t job = 0; job < 4; ++job) {  // one after the other, on every stream that there is
    const std::vector<uint8_t> zeros(kSize);
    ASSERT_TRUE(context_->CopyFromHost(destination_.base, zeros.data(), kSize));
    Post(job, {segment});
    EXPECT_TRUE(Await().ok);
    ExpectMoved(places, 10);
  }
}

// A kernel's list cuts them.
TEST_P(GpuLoopTest, BlocksLongerThanAnItemOfAKernelArriveAmongShortOnes) {
  std::vector<CopySegment> segments;
  std::vector<uint8_t> expected(kSize);
  uint64_t at = 3;
  for (const uint64_t length : {4096, 16384, 16385, 20000, 32768, 33001, 100003, 262144}) {
    for (const uint64_t shift : {0, 5}) {
      const uint64_t from = 11 + length % 977;
      segments.push_back(Plain(from, at + shift, length));
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(from), length,
                  expected.begin() + static_cast<std::ptrdiff_t>(at + shift));
      at += length + 64;
    }
  }
  ASSERT_LT(at, kSize);
  Post(1, segments);
  EXPECT_TRUE(Await().ok);
  EXPECT_TRUE(Destination() == expected);
}

TEST_P(GpuLoopTest, ListedBlocksLongerThanAnItemOfAKernelArrive) {
  const std::vector<BlockPlaces> places = {{7, 100'000}, {40'001, 17}, {500'000, 300'001}};
  CopySegment segment = Plain(0, 0, 50'007);
  segment.places = places;
  segment.count = static_cast<uint32_t>(places.size());
  Post(5, {segment});
  EXPECT_TRUE(Await().ok);
  ExpectMoved(places, 50'007);
}

// Rows of one copy, where they are enough and apart from each other, or blocks of a batch.
TEST_P(GpuLoopTest, BlocksAtOneStepArriveAndWhatLiesBetweenThemStays) {
  struct {
    uint64_t length;
    uint32_t count;
    uint64_t from, to;
  } const cases[] = {{4096, 64, 8192, 12288}, {777, 64, 1003, 2001}, {777, 15, 1003, 2001},
                     {4096, 16, 4096, 4096},  {100, 40, 30, 100},    {1000, 40, 0, 1000}};
  std::vector<CopySegment> segments;
  std::vector<uint8_t> expected(kSize);
  uint64_t at = 11;
  for (const auto& c : cases) {
    // Among blocks of other kinds, in one job.
    segments.push_back(Plain(5, at, 3));
    std::copy_n(image_.begin() + 5, 3, expected.begin() + static_cast<std::ptrdiff_t>(at));
    at += 50;
    CopySegment segment = Plain(77, at, c.length);
    segment.count = c.count;
    segment.source_stride = c.from;
    segment.destination_stride = c.to;
    segments.push_back(segment);
    for (uint64_t i = 0; i < c.count; ++i, at += c.to) {
      std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(77 + i * c.from), c.length,
                  expected.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  ASSERT_LT(at, kSize);
  Post(1, segments);
  EXPECT_TRUE(Await().ok);
  EXPECT_TRUE(Destination() == expected);
}

TEST_P(GpuLoopTest, RowsWhoseLastByteIsBeyondTheMemoryAreRefused) {
  CopySegment segment = Plain(0, 0, 100);
  segment.count = 64;
  segment.source_stride = segment.destination_stride = 1000;
  CopySegment last = segment;
  last.source_offset = last.destination_offset = kSize - 63 * 1000 - 100;
  Post(1, {last});
  EXPECT_TRUE(Await().ok);
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < 64; ++i) {
    places.push_back({last.source_offset + i * 1000, last.source_offset + i * 1000});
  }
  CopySegment beyond[] = {last, last, segment, segment};
  ++beyond[0].source_offset;
  ++beyond[1].destination_offset;
  beyond[2].source_stride = ~uint64_t{0} / 63 + 1;  // 63 times that wraps around
  beyond[3].destination_stride = ~uint64_t{0} / 63 + 1;
  for (const CopySegment& refused : beyond) {
    Post(2, {refused});
    EXPECT_EQ(Await().code, ErrorCode::kOutOfRange);
  }
  ExpectMoved(places, 100);
}

TEST_P(GpuLoopTest, ManyJobsAreCompletedInTheirOrder) {
  std::vector<BlockPlaces> places;
  for (uint64_t i = 0; i < 300; ++i) {
    places.push_back({i * 4096, (299 - i) * 4096});
    Post(i, {Plain(places.back().source, places.back().destination, 4096)});
  }
  for (uint64_t i = 0; i < 300; ++i) {
    const Completion done = Await();
    ASSERT_EQ(done.tag, i);
    ASSERT_TRUE(done.ok);
  }
  ExpectMoved(places, 4096);
}

TEST_P(GpuLoopTest, JobsOfHostMemoryBetweenThemKeepTheOrder) {
  for (uint64_t i = 0; i < 200; ++i) {
    CopySegment segment = Plain(0, i * 64, 64);
    if (i % 3 == 1) segment = OfHost();
    Post(i, {segment});
  }
  for (uint64_t i = 0; i < 200; ++i) {
    const Completion done = Await();
    ASSERT_EQ(done.tag, i);
    ASSERT_TRUE(done.ok);
  }
  EXPECT_TRUE(std::equal(host_.data(), host_.data() + 64, host_.data() + 32768));
}

TEST_P(GpuLoopTest, AJobOverMoreMappingsThanAreHeldAtOnce) {
  std::vector<CopySegment> segments;
  std::vector<BlockPlaces> places;
  for (uint32_t i = 0; i < 150; ++i) {
    const memory::MappingId id{10 + i, 1};
    const gpu::AddressRange range = Add(id);
    ASSERT_TRUE(context_->CopyFromHost(range.base, image_.data(), kSize));
    CopySegment segment = Plain(i * 8192, i * 8192, 1000);
    segment.source = id;
    segments.push_back(segment);
    places.push_back({i * 8192, i * 8192});
  }
  Post(1, segments);
  EXPECT_TRUE(Await().ok);
  ExpectMoved(places, 1000);
  // None of them is held any more.
  for (uint32_t i = 0; i < 150; ++i) EXPECT_TRUE(mappings_.Remove({10 + i, 1}));
}

TEST_P(GpuLoopTest, AMappingIsHeldWhileTheGpuWorksOnIt) {
  // Enough that the GPU is still at it when the mapping is taken away.
  std::vector<CopySegment> segments(64, Plain(0, 0, kSize / 2));
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].destination_offset = i % 2 * (kSize / 2);
  }
  segments.push_back(OfHost());
  Post(1, segments);
  AwaitTaken();
  EXPECT_TRUE(mappings_.Remove(kSource));  // would end the process, were it unmapped meanwhile
  EXPECT_TRUE(Await().ok);
  CopySegment again = Plain(0, 0, 64);
  Post(2, {again});
  EXPECT_EQ(Await().code, ErrorCode::kStaleGeneration);
}

TEST_P(GpuLoopTest, ARefusedSegmentFailsItsJobAndNoOther) {
  Post(1, {Plain(0, 0, 4096), Plain(kSize - 1, 0, 2), Plain(8192, 8192, 4096)});
  Post(2, {Plain(4096, 4096, 4096)});
  const Completion refused = Await();
  EXPECT_FALSE(refused.ok);
  EXPECT_EQ(refused.code, ErrorCode::kOutOfRange);
  EXPECT_TRUE(Await().ok);
  ExpectMoved({{0, 0}, {4096, 4096}}, 4096);
}

INSTANTIATE_BY_EITHER_MEANS(GpuLoopTest);

}  // namespace
}  // namespace gantry::worker
