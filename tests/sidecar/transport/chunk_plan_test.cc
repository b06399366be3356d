#include "sidecar/transport/chunk_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace gantry::transport {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

TEST(ChunkBytes, IsTheDevicesLimitInWholePages) {
  EXPECT_EQ(*ChunkBytes({.device_max = 1 << 30}), 1U << 30);
  EXPECT_EQ(*ChunkBytes({.device_max = kPage}), kPage);
  EXPECT_EQ(*ChunkBytes({.device_max = (uint64_t{2} << 30) - 1}), (uint64_t{2} << 30) - kPage);
  EXPECT_EQ(*ChunkBytes({.device_max = kPage * 3 - 1}), kPage * 2);
  EXPECT_EQ(*ChunkBytes({.device_max = 3 << 20, .alignment = 2 << 20}), 2U << 20);
}

TEST(ChunkBytes, IsWithoutALimitTheLargestMultipleOfThePage) {
  EXPECT_EQ(*ChunkBytes({}), kMost - kPage + 1);
  EXPECT_EQ(*ChunkBytes({.device_max = kMost}), kMost - kPage + 1);
}

TEST(ChunkBytes, AnOverrideHoldsInBothDirections) {
  const uint64_t device_max = uint64_t{2} << 30;
  EXPECT_EQ(*ChunkBytes({.device_max = device_max, .override_bytes = 1 << 20}), 1U << 20);
  EXPECT_EQ(*ChunkBytes({.device_max = device_max, .override_bytes = device_max * 4}),
            device_max * 4);
  EXPECT_EQ(*ChunkBytes({.override_bytes = kPage + 1}), kPage);
  // Also where the device tells nonsense.
  EXPECT_EQ(*ChunkBytes({.device_max = 1, .override_bytes = 1 << 20}), 1U << 20);
}

TEST(ChunkBytes, LessThanAPageIsRefusedByWhoeverSaidIt) {
  const auto device = ChunkBytes({.device_max = kPage - 1});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::kDeviceError);
  EXPECT_NE(device.error().message.find("4095"), std::string::npos) << device.error().message;
  const auto configured = ChunkBytes({.device_max = 1 << 30, .override_bytes = 17});
  ASSERT_FALSE(configured);
  EXPECT_EQ(configured.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(configured.error().message.find("17"), std::string::npos) << configured.error().message;
}

TEST(ChunkBytes, OnlyPowersOfTwoAlign) {
  EXPECT_FALSE(ChunkBytes({.device_max = 1 << 20, .alignment = 0}));
  EXPECT_FALSE(ChunkBytes({.device_max = 1 << 20, .alignment = 3000}));
  EXPECT_TRUE(ChunkBytes({.device_max = 1 << 20, .alignment = 1}));
}

// What holds for every plan.
void ExpectSound(const std::vector<Chunk>& chunks, uint64_t length, uint64_t chunk_bytes,
                 uint64_t misalignment, uint64_t alignment) {
  SCOPED_TRACE(std::to_string(length) + " bytes by " + std::to_string(chunk_bytes) + " from " +
               std::to_string(misalignment) + " on, aligned to " + std::to_string(alignment));
  ASSERT_FALSE(chunks.empty());
  uint64_t end = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    ASSERT_EQ(chunks[i].offset, end) << "chunk " << i;
    ASSERT_GT(chunks[i].length, 0U) << "chunk " << i;
    ASSERT_LE(chunks[i].length, chunk_bytes) << "chunk " << i;
    ASSERT_TRUE(EndOf(end, chunks[i].length, &end)) << "chunk " << i << " wraps around";
    if (i + 1 == chunks.size()) break;
    ASSERT_EQ((end % alignment + misalignment) % alignment, 0U) << "seam " << i;
    ASSERT_EQ(chunks[i].length, i == 0 ? chunk_bytes - misalignment : chunk_bytes);
  }
  ASSERT_EQ(end, length);
}

TEST(PlanChunks, HoldsForRandomLengthsLimitsAndAddresses) {
  std::mt19937_64 random(7);
  int of_one_chunk = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t alignment = uint64_t{1} << random() % 22;
    // Of each order of magnitude as many.
    const uint64_t chunk_bytes = alignment * (1 + (random() >> (43 + random() % 21)));
    const uint64_t misalignment = random() % alignment;
    const uint64_t up_to = random() % 3 == 0 ? chunk_bytes : chunk_bytes * (1 + random() % 300);
    const uint64_t length = 1 + random() % up_to;
    const auto chunks = PlanChunks(length, chunk_bytes, misalignment, alignment);
    ASSERT_TRUE(chunks) << chunks.error().message;
    ExpectSound(*chunks, length, chunk_bytes, misalignment, alignment);
    if (::testing::Test::HasFatalFailure()) return;
    if (chunks->size() == 1) ++of_one_chunk;
  }
  EXPECT_GT(of_one_chunk, 1000);
  EXPECT_LT(of_one_chunk, 19'000);
}

TEST(PlanChunks, CutsWhereTheLimitSays) {
  const std::vector<Chunk> expected = {{0, 2 * kPage}, {2 * kPage, 2 * kPage}, {4 * kPage, 1}};
  EXPECT_EQ(*PlanChunks(4 * kPage + 1, 2 * kPage), expected);
  const std::vector<Chunk> behind = {{0, 2 * kPage - 5}, {2 * kPage - 5, 5}};
  EXPECT_EQ(*PlanChunks(2 * kPage, 2 * kPage, 5), behind);
}

TEST(PlanChunks, OneChunkWhereTheBufferFits) {
  for (const uint64_t length : {uint64_t{1}, kPage - 7, kPage, 2 * kPage - 7}) {
    EXPECT_EQ(*PlanChunks(length, 2 * kPage, 7), (std::vector<Chunk>{{0, length}}));
  }
  EXPECT_EQ(PlanChunks(2 * kPage - 6, 2 * kPage, 7)->size(), 2U);
  EXPECT_TRUE(PlanChunks(0, kPage)->empty());
}

TEST(PlanChunks, HugeLengthsDoNotWrapAround) {
  const uint64_t unlimited = *ChunkBytes({});
  for (const uint64_t length : {(uint64_t{1} << 63) - 1, uint64_t{1} << 63, kMost - 1, kMost}) {
    for (const uint64_t chunk_bytes :
         {uint64_t{1} << 50, uint64_t{1} << 62, uint64_t{1} << 63, unlimited}) {
      for (const uint64_t misalignment : {uint64_t{0}, uint64_t{1}, kPage - 1}) {
        const auto chunks = PlanChunks(length, chunk_bytes, misalignment);
        ASSERT_TRUE(chunks) << chunks.error().message;
        ExpectSound(*chunks, length, chunk_bytes, misalignment, kPage);
      }
    }
  }
}

TEST(PlanChunks, ManyMoreChunksThanAnyBufferHasAreRefused) {
  EXPECT_EQ(PlanChunks(kChunksMax * kPage, kPage)->size(), kChunksMax);
  EXPECT_FALSE(PlanChunks(kChunksMax * kPage + 1, kPage));
  EXPECT_FALSE(PlanChunks(kChunksMax * kPage, kPage, 1)) << "the first chunk is shorter";
  EXPECT_TRUE(PlanChunks(kChunksMax * kPage - 1, kPage, 1));
  const auto chunks = PlanChunks(kMost, 1, 0, 1);  // no memory would hold them
  ASSERT_FALSE(chunks);
  EXPECT_EQ(chunks.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(chunks.error().message.find("1000000"), std::string::npos) << chunks.error().message;
  EXPECT_NE(chunks.error().hint.find("configure"), std::string::npos) << chunks.error().hint;
}

TEST(PlanChunks, LimitsWithoutAlignedSeamsAreRefused) {
  EXPECT_FALSE(PlanChunks(1 << 20, 0));
  EXPECT_FALSE(PlanChunks(1 << 20, kPage + 1));
  EXPECT_FALSE(PlanChunks(1 << 20, kPage, kPage));
  EXPECT_FALSE(PlanChunks(1 << 20, kPage, 0, 0));
  EXPECT_FALSE(PlanChunks(1 << 20, kPage, 0, 3));
}

}  // namespace
}  // namespace gantry::transport
