#include "sidecar/copy/job_builder.h"

#include <gtest/gtest.h>

#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::transport {
namespace {

using worker::GpuMeans;

class JobBuilderTest : public ::testing::Test {
 protected:
  JobBuilderTest() {
    for (auto& arena : {&arena_, &other_}) {
      memory::AllocationSource source;
      source.fd = std::make_shared<UniqueFd>(arena->Fd());
      source.size = arena->size();
      source.writable = true;
      plan_.local.push_back(*memory::MappedAllocation::Create(pool_, source));
      plan_.remote.push_back({plan_.local.back()});
    }
  }

  static MoveSegment Block(uint64_t local, uint64_t remote, uint64_t length = 64,
                           uint32_t allocation = 0) {
    MoveSegment segment;
    segment.local_allocation = segment.remote_allocation = allocation;
    segment.local_offset = local;
    segment.remote_offset = remote;
    segment.length = length;
    return segment;
  }
  std::vector<worker::CopySegment> Build(const std::vector<MoveSegment>& segments, bool listed) {
    builder_.Begin(plan_, GpuMeans::kKernel, listed, segments.size());
    for (const MoveSegment& segment : segments) builder_.Add(segment);
    return {builder_.job().begin(), builder_.job().end()};
  }

  worker::FakeCopyPool pool_;
  testing::TestArena arena_{65536};
  testing::TestArena other_{65536};
  MovePlan plan_;
  JobBuilder builder_;
};

TEST_F(JobBuilderTest, BlocksOfOneLengthAndPairAreOneListedSegment) {
  const auto job = Build({Block(0, 640), Block(128, 64), Block(1024, 0)}, true);
  ASSERT_EQ(job.size(), 1U);
  EXPECT_EQ(job[0].count, 3U);
  EXPECT_EQ(job[0].length, 64U);
  EXPECT_EQ(job[0].means, GpuMeans::kKernel);
  ASSERT_EQ(job[0].places.size(), 3U);
  EXPECT_EQ(job[0].places[1].source, 64U) << "a read is from the remote side";
  EXPECT_EQ(job[0].places[1].destination, 128U);
  EXPECT_EQ(job[0].places[2].destination, 1024U);
}

// What little a transfer brings is read from a cache, and so little memory is written again there.
TEST_F(JobBuilderTest, JobsOfLargeTransfersIntoLargeMemoryAreStreamed) {
  constexpr uint64_t kMuch = 8 << 20;
  const testing::TestArena large(256 << 20, testing::TestArena::Untouched());
  const testing::TestArena smaller((256 << 20) - 4096, testing::TestArena::Untouched());
  const auto into_large = *memory::MappedAllocation::Create(pool_, large.source());
  const auto into_smaller = *memory::MappedAllocation::Create(pool_, smaller.source());
  const auto is_streamed = [&](uint64_t bytes, const auto& local, const auto& remote, bool listed) {
    plan_.bytes = bytes;
    plan_.local[0] = local;
    plan_.remote[0] = {remote};
    const auto job = Build({Block(0, 0), Block(64, 256)}, listed);
    const bool first = job.front().streamed;
    for (const auto& segment : job) EXPECT_EQ(segment.streamed, first);
    return first;
  };
  for (const bool listed : {false, true}) {
    plan_.operation = wire::Operation::kRead;
    EXPECT_TRUE(is_streamed(kMuch, into_large, into_smaller, listed));
    EXPECT_FALSE(is_streamed(kMuch - 1, into_large, into_smaller, listed));
    EXPECT_FALSE(is_streamed(kMuch, into_smaller, into_large, listed));
    plan_.operation = wire::Operation::kWrite;
    EXPECT_TRUE(is_streamed(kMuch, into_smaller, into_large, listed));
    EXPECT_FALSE(is_streamed(kMuch, into_large, into_smaller, listed));
  }
}

TEST_F(JobBuilderTest, AWriteGoesTheOtherWay) {
  plan_.operation = wire::Operation::kWrite;
  const auto job = Build({Block(0, 640), Block(128, 64)}, true);
  ASSERT_EQ(job.size(), 1U);
  EXPECT_EQ(job[0].places[1].source, 128U);
  EXPECT_EQ(job[0].places[1].destination, 64U);
}

TEST_F(JobBuilderTest, AnotherLengthOrAllocationBeginsAnotherSegment) {
  const auto job =
      Build({Block(0, 0), Block(64, 64), Block(256, 256, 32), Block(512, 0, 32, 1)}, true);
  ASSERT_EQ(job.size(), 3U);
  EXPECT_EQ(job[0].places.size(), 2U);
  EXPECT_EQ(job[1].places.size(), 1U);
  EXPECT_EQ(job[1].places[0].source, 256U);
  EXPECT_EQ(job[2].source, plan_.remote[1].mapped->mapping());
}

TEST_F(JobBuilderTest, StridedBlocksStayAsTheyAre) {
  MoveSegment strided = Block(0, 0);
  strided.count = 4;
  strided.local_stride = 128;
  strided.remote_stride = 256;
  const auto job = Build({Block(4096, 4096), strided, Block(8192, 8192)}, true);
  ASSERT_EQ(job.size(), 3U);
  EXPECT_TRUE(job[1].places.empty());
  EXPECT_EQ(job[1].count, 4U);
  EXPECT_EQ(job[1].source_stride, 256U);
  EXPECT_EQ(job[2].places.size(), 1U) << "not one with the first";
}

TEST_F(JobBuilderTest, WithoutListsEachBlockIsASegment) {
  const auto job = Build({Block(0, 640), Block(128, 64)}, false);
  ASSERT_EQ(job.size(), 2U);
  EXPECT_TRUE(job[0].places.empty());
  EXPECT_EQ(job[1].source_offset, 64U);
}

TEST_F(JobBuilderTest, ANewJobForgetsTheOneBefore) {
  Build({Block(0, 0), Block(64, 64)}, true);
  const auto job = Build({Block(4096, 4096)}, true);
  ASSERT_EQ(job.size(), 1U);
  ASSERT_EQ(job[0].places.size(), 1U);
  EXPECT_EQ(job[0].places[0].source, 4096U);
}

// Blocks of a run list are what their segments are, whatever the parts and the direction.
TEST_F(JobBuilderTest, BlocksOfRunsAreAddedLikeTheirSegments) {
  const std::vector<BlockRun> runs = {{5, 9, 1, 0}, {0, 3, 1, 1}, {11, 4, 1, 2}, {2, 2, 1, 3}};
  JobBuilder other;
  for (const auto operation : {wire::Operation::kRead, wire::Operation::kWrite}) {
    for (const auto& [local_parts, remote_parts] :
         {std::pair{1U, 1U}, {3U, 1U}, {1U, 2U}, {2U, 3U}}) {
      plan_.operation = operation;
      BlockPair pair;
      pair.local_base = 8;
      pair.remote_base = 4096;
      pair.unit_bytes = 16;
      pair.local_stride = 1000;
      pair.remote_stride = 700;
      pair.local_parts = local_parts;
      pair.remote_parts = remote_parts;
      builder_.Begin(plan_, GpuMeans::kKernel, /*listed=*/true, 2 * runs.size());
      other.Begin(plan_, GpuMeans::kKernel, /*listed=*/true, 2 * runs.size());
      for (int twice = 0; twice < 2; ++twice) {
        builder_.AddBlocks(pair, runs);
        for (const BlockRun& run : runs) other.Add(SegmentList::SegmentOf(pair, run));
      }
      ASSERT_EQ(builder_.job().size(), 1U);
      ASSERT_EQ(builder_.job()[0].count, 8U);
      for (size_t i = 0; i < 8; ++i) {
        const worker::BlockPlaces& place = builder_.job()[0].places[i];
        EXPECT_EQ(place.source, other.job()[0].places[i].source);
        EXPECT_EQ(place.destination, other.job()[0].places[i].destination);
      }
    }
  }
}

TEST(SegmentListIterator, WalksAsTheIndexSaysFromAnywhere) {
  SegmentList list;
  for (uint32_t i = 0; i < 3; ++i) {
    MoveSegment segment;
    segment.length = 1;
    segment.first_item = i;
    list.push_back(segment);
  }
  BlockPair pair;
  pair.unit_bytes = pair.local_stride = pair.remote_stride = 8;
  BlockPair second = pair;
  second.local_allocation = 1;
  list.AddRuns({pair, second}, {{1, 9, 1, 3}, {4, 2, 2, 4}});
  list.AddRuns({second}, {{7, 7, 1, 6}});
  ASSERT_EQ(list.size(), 8U);
  for (size_t from = 0; from <= list.size(); ++from) {
    size_t index = from;
    for (auto next = list.From(from); next != list.end(); ++next, ++index) {
      const MoveSegment walked = *next;
      const MoveSegment asked = list[index];
      EXPECT_EQ(walked.local_allocation, asked.local_allocation);
      EXPECT_EQ(walked.local_offset, asked.local_offset);
      EXPECT_EQ(walked.remote_offset, asked.remote_offset);
      EXPECT_EQ(walked.length, asked.length);
      EXPECT_EQ(walked.first_item, asked.first_item);
    }
    EXPECT_EQ(index, list.size());
  }
}

// One pair of neighbours among thousands of blocks does not make the others slow.
TEST(SegmentListIterator, SingleBlocksReachUpToTheNextLongerRun) {
  SegmentList list;
  BlockPair pair;
  pair.unit_bytes = pair.local_stride = pair.remote_stride = 8;
  const std::vector<BlockRun> runs = {{1, 9, 1, 0}, {4, 2, 1, 1}, {7, 7, 2, 2}, {20, 3, 1, 4}};
  list.AddRuns({pair, pair}, runs);
  const size_t counts[] = {2, 1, 0, 1};
  for (size_t index = 0; index < list.size(); ++index) {
    const auto blocks = list.From(index).SingleBlocks();
    ASSERT_EQ(blocks.runs.size(), counts[index % runs.size()]) << index;
    for (size_t i = 0; i < blocks.runs.size(); ++i) {
      EXPECT_EQ(list[index + i].local_offset, blocks.pair->local_offset(blocks.runs[i].local_unit));
    }
  }
}

}  // namespace
}  // namespace gantry::transport
