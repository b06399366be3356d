// What a worker copies between memory of a GPU and the host's.
#include <algorithm>
#include <future>

#include "tests/sidecar/worker/gpu_loop_fixture.h"

namespace gantry::worker {
namespace {

constexpr memory::MappingId kLarge = {9, 4};
constexpr uint64_t kEdge = 40 << 20;  // more than the stage has
static_assert(kEdge > StagingBuffer::kSlices * StagingBuffer::kSliceBytes);
constexpr uint64_t kLargeBytes = kEdge + 100'001;  // not whole pages

class GpuHostLoopTest : public GpuLoopTest {
 protected:
  void SetUp() override {
    GpuLoopTest::SetUp();
    AddLarge(true);
  }
  void AddLarge(bool writable) {
    auto mapping = memory::HostMapping::Create(large_.source().fd->get(), kLargeBytes, writable);
    ASSERT_TRUE(mapping && mappings_.Add(kLarge, std::move(*mapping)));
  }
  CopySegment ToGpu(uint64_t from, uint64_t to, uint64_t length) const {
    CopySegment segment = Plain(from, to, length);
    segment.source = kLarge;
    return segment;
  }
  CopySegment ToHost(uint64_t from, uint64_t to, uint64_t length) const {
    CopySegment segment = Plain(from, to, length);
    segment.destination = kLarge;
    return segment;
  }

  testing::TestArena large_{kLargeBytes, 0};
};

TEST_P(GpuHostLoopTest, BlocksGoToTheHostAndBackAndTheirNeighboursStay) {
  std::vector<BlockPlaces> out, back;
  for (uint64_t i = 0; i < 300; ++i) out.push_back({(299 - i) * 2000 + 1, kEdge - 1501 + i * 290});
  for (const BlockPlaces& place : out) back.push_back({place.destination, place.source + 3});
  CopySegment listed = ToHost(0, 0, 277);
  listed.places = out;
  listed.count = 300;
  Post(1, {listed});
  const Completion done = Await();
  EXPECT_TRUE(done.ok);
  EXPECT_EQ(done.means, GpuMeans::kCopyEngine) << "whatever was asked for";
  std::vector<uint8_t> expected(kLargeBytes);
  for (const BlockPlaces& place : out) {
    std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(place.source), 277,
                expected.begin() + static_cast<std::ptrdiff_t>(place.destination));
  }
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), large_.data()));

  CopySegment again = ToGpu(0, 0, 277);
  again.places = back;
  again.count = 300;
  Post(2, {again});
  EXPECT_TRUE(Await().ok);
  std::vector<uint8_t> on_gpu(kSize);
  for (const BlockPlaces& place : out) {
    std::copy_n(image_.begin() + static_cast<std::ptrdiff_t>(place.source), 277,
                on_gpu.begin() + static_cast<std::ptrdiff_t>(place.source) + 3);
  }
  EXPECT_TRUE(Destination() == on_gpu);
}

TEST_P(GpuHostLoopTest, WhatIsStreamedToTheHostAndBackIsTheSame) {
  CopySegment out = ToHost(3, 9, 20'001);
  CopySegment back = ToGpu(9, 5, 20'001);
  out.streamed = back.streamed = true;
  Post(1, {out});
  EXPECT_TRUE(Await().ok);
  EXPECT_EQ(large_.data()[8], 0);
  EXPECT_TRUE(std::equal(image_.begin() + 3, image_.begin() + 3 + 20'001, large_.data() + 9));
  EXPECT_EQ(large_.data()[9 + 20'001], 0);
  Post(2, {back});
  EXPECT_TRUE(Await().ok);
  std::vector<uint8_t> on_gpu(kSize);
  std::copy_n(image_.begin() + 3, 20'001, on_gpu.begin() + 5);
  EXPECT_TRUE(Destination() == on_gpu);
}

TEST_P(GpuHostLoopTest, StridedBlocksAndOneThatIsAsLongAsTheMemory) {
  CopySegment strided = ToHost(5, 9, 100);
  strided.source_stride = 128;
  strided.destination_stride = 101;
  strided.count = 1000;
  Post(1, {strided, ToHost(0, kLargeBytes - kSize, kSize)});
  EXPECT_TRUE(Await().ok);
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto from = image_.begin() + static_cast<std::ptrdiff_t>(5 + i * 128);
    ASSERT_TRUE(std::equal(from, from + 100, large_.data() + 9 + i * 101)) << i;
  }
  EXPECT_TRUE(std::equal(image_.begin(), image_.end(), large_.data() + kLargeBytes - kSize));
}

TEST_P(GpuHostLoopTest, WhatDoesNotFitOrMayNotBeWrittenIsRefused) {
  Post(1, {ToHost(0, kLargeBytes - 1, 2)});
  EXPECT_EQ(Await().code, ErrorCode::kOutOfRange);
  ASSERT_TRUE(mappings_.Remove(kLarge));
  AddLarge(false);
  Post(2, {ToHost(0, 0, 64)});
  EXPECT_EQ(Await().code, ErrorCode::kFdReadOnly);
  large_.data()[77] = 7;
  Post(3, {ToGpu(77, 0, 1)});
  EXPECT_TRUE(Await().ok);
  EXPECT_EQ(Destination()[0], 7);
}

TEST_P(GpuHostLoopTest, HostMemoryIsHeldUntilTheLastByteIsThere) {
  for (uint64_t round = 0; round < 3; ++round) {
    large_.Fill(0);
    std::vector<CopySegment> segments(24, ToHost(0, 0, kSize));
    segments.push_back(OfHost());
    Post(1, segments);
    AwaitTaken();
    EXPECT_TRUE(mappings_.Remove(kLarge));  // would end the process, were it unmapped meanwhile
    EXPECT_TRUE(Await().ok);
    EXPECT_TRUE(std::equal(image_.begin(), image_.end(), large_.data()));
    Post(2, {ToHost(0, 0, 64)});
    EXPECT_EQ(Await().code, ErrorCode::kStaleGeneration);
    AddLarge(true);
  }
}

// More than the stage has at once, within a job and over many, while mappings come and go.
TEST_P(GpuHostLoopTest, MoreThanTheStageHoldsArrivesWhole) {
  std::vector<CopySegment> segments;
  for (uint64_t at = 0; at + kSize <= kEdge; at += kSize) segments.push_back(ToHost(0, at, kSize));
  Post(1, segments);
  const auto arrived = [&](uint64_t at) {
    return std::equal(image_.begin(), image_.end(), large_.data() + at);
  };
  EXPECT_TRUE(Await().ok);
  for (uint64_t at = 0; at + kSize <= kEdge; at += kSize) ASSERT_TRUE(arrived(at)) << at;
  large_.Fill(0);
  for (uint64_t i = 0; i < segments.size(); ++i) Post(i, {segments[i]});
  for (uint64_t i = 0; i < segments.size(); ++i) {
    const Completion done = Await();
    ASSERT_EQ(done.tag, i);
    ASSERT_TRUE(done.ok && arrived(i * kSize)) << "told before it was there: " << i;
  }
  // The way back, in parts that fit no slice.
  for (uint64_t at = 0; at < kSize; at += 700'001) {
    Post(at, {ToGpu(at, at, std::min<uint64_t>(700'001, kSize - at))});
    EXPECT_TRUE(Await().ok);
  }
  EXPECT_TRUE(Destination() == image_);
}

// A job that has more mappings than are held at once waits for the GPU in its middle: what came
// before is where it belongs when nothing holds its memory any more.
TEST_P(GpuHostLoopTest, WhatIsHeldNoLongerInTheMiddleOfAJobIsComplete) {
  std::vector<CopySegment> segments = {ToHost(7, 11, 4096)};
  segments.front().destination = kHost;
  for (uint32_t i = 0; i < 80; ++i) {
    const memory::MappingId id{20 + i, 1};
    ASSERT_TRUE(context_->CopyFromHost(Add(id).base, image_.data(), kSize));
    segments.push_back(ToHost(i, i * 64, 64));
    segments.back().source = id;
  }
  for (uint64_t i = 1; i < 16; ++i) segments.push_back(ToHost(0, i * kSize, kSize));
  const uint32_t before = memory_->submission_tail.value.load();
  Post(1, segments);
  while (memory_->submission_tail.value.load() == before) std::this_thread::yield();
  EXPECT_TRUE(mappings_.Remove(kHost));
  EXPECT_TRUE(std::equal(host_.data() + 11, host_.data() + 11 + 4096, image_.begin() + 7));
  EXPECT_TRUE(Await().ok);
  for (uint32_t i = 0; i < 80; ++i) {
    ASSERT_TRUE(std::equal(image_.begin() + i, image_.begin() + i + 64, large_.data() + i * 64));
    EXPECT_TRUE(mappings_.Remove({20 + i, 1}));
  }
}

TEST_P(GpuHostLoopTest, JobsOfAllKindsKeepTheOrder) {
  for (uint64_t i = 0; i < 300; ++i) {
    CopySegment segment = Plain(0, i * 64, 64);
    if (i % 4 == 1) segment = ToHost(i, i * 64, 64);
    if (i % 4 == 2) segment = OfHost();
    if (i % 4 == 3) segment = ToGpu(kEdge - 32, i * 64, 64);
    Post(i, {segment});
  }
  for (uint64_t i = 0; i < 300; ++i) {
    const Completion done = Await();
    ASSERT_EQ(done.tag, i);
    ASSERT_TRUE(done.ok);
  }
  for (uint64_t i = 1; i < 300; i += 4) {
    const auto from = image_.begin() + static_cast<std::ptrdiff_t>(i);
    ASSERT_TRUE(std::equal(from, from + 64, large_.data() + i * 64)) << i;
  }
}

INSTANTIATE_BY_EITHER_MEANS(GpuHostLoopTest);

}  // namespace
}  // namespace gantry::worker
