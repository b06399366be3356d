#include "sidecar/worker/process/segment_copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "lib/base/unique_fd.h"
#include "sidecar/worker/process/fault_guard.h"
#include "sidecar/worker/process/stream_copy.h"

namespace gantry::worker {
namespace {

constexpr uint64_t kStorageBytes = 1000;
constexpr uint64_t kHuge = ~uint64_t{0};

struct Bytes {
  std::vector<std::byte> storage = std::vector<std::byte>(kStorageBytes);
  bool writable = true;
  MappedBytes mapped() { return {storage.data(), kStorageBytes, writable}; }
};

CopySegment Segment(uint64_t source, uint64_t destination, uint64_t length, uint64_t source_stride,
                    uint64_t destination_stride, uint32_t count) {
  return {{0, 1}, {1, 2}, source, destination, length, source_stride, destination_stride, count};
}

std::optional<ErrorCode> Validate(const CopySegment& segment, bool writable = true) {
  Bytes source;
  Bytes destination;
  destination.writable = writable;
  return ValidateSegment(segment, source.mapped(), destination.mapped());
}

TEST(ValidateSegment, AcceptsWhatFits) {
  EXPECT_EQ(Validate(Segment(0, 0, kStorageBytes, 0, 0, 1)), std::nullopt);
  EXPECT_EQ(Validate(Segment(999, 999, 1, kHuge, kHuge, 1)), std::nullopt);
  EXPECT_EQ(Validate(Segment(0, 100, 100, 200, 100, 5)), std::nullopt);
  EXPECT_EQ(Validate(Segment(0, 0, 100, 100, 100, 10)), std::nullopt);
}

TEST(ValidateSegment, RefusesEmptyOnes) {
  EXPECT_EQ(Validate(Segment(0, 0, 0, 0, 0, 1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Validate(Segment(0, 0, 1, 0, 0, 0)), ErrorCode::kInvalidArgument);
}

TEST(ValidateSegment, RefusesOneByteTooMuchOnEitherSide) {
  EXPECT_EQ(Validate(Segment(1, 0, kStorageBytes, 0, 0, 1)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 1, kStorageBytes, 0, 0, 1)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(1, 0, 100, 100, 100, 10)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 1, 100, 100, 100, 10)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 0, 100, 101, 100, 10)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 0, 100, 100, 101, 10)), ErrorCode::kOutOfRange);
}

TEST(ValidateSegment, DoesNotWrapAround) {
  EXPECT_EQ(Validate(Segment(kHuge, 0, 2, 0, 0, 1)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, kHuge, 2, 0, 0, 1)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(2, 0, kHuge, 0, 0, 1)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 0, 1, kHuge, 0, 2)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 0, 1, 0, kHuge, 2)), ErrorCode::kOutOfRange);
  // 4 * 2^62 wraps to 0, and so does 2^63 * 2.
  EXPECT_EQ(Validate(Segment(0, 0, 1, uint64_t{1} << 62, 0, 5)), ErrorCode::kOutOfRange);
  EXPECT_EQ(Validate(Segment(0, 0, 1, 0, uint64_t{1} << 63, 3)), ErrorCode::kOutOfRange);
  // The last block lies just below the end of the address space; its length wraps.
  EXPECT_EQ(Validate(Segment(0, 0, 16, kHuge - 8, 0, 2)), ErrorCode::kOutOfRange);
}

TEST(ValidateSegment, NeverWritesToAReadOnlyMapping) {
  EXPECT_EQ(Validate(Segment(0, 0, 1, 0, 0, 1), /*writable=*/false), ErrorCode::kFdReadOnly);
}

TEST(CopyBytes, CopiesStridedBlocksAndNothingElse) {
  Bytes source;
  Bytes destination;
  for (size_t i = 0; i < kStorageBytes; ++i) source.storage[i] = static_cast<std::byte>(i);
  const CopySegment segment = Segment(10, 500, 4, 20, 8, 5);
  ASSERT_EQ(ValidateSegment(segment, source.mapped(), destination.mapped()), std::nullopt);
  CopyBytes(segment, source.mapped(), destination.mapped());
  std::vector<std::byte> expected(kStorageBytes);
  for (size_t block = 0; block < 5; ++block) {
    for (size_t i = 0; i < 4; ++i) {
      expected[500 + block * 8 + i] = source.storage[10 + block * 20 + i];
    }
  }
  EXPECT_EQ(destination.storage, expected);
}

TEST(CopyBytes, MovesWithinOneAllocation) {
  Bytes both;
  for (size_t i = 0; i < kStorageBytes; ++i) both.storage[i] = static_cast<std::byte>(i);
  const std::vector<std::byte> before = both.storage;
  CopyBytes(Segment(0, 1, 900, 0, 0, 1), both.mapped(), both.mapped());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 900, both.storage.begin() + 1));
}

TEST(ValidateSegment, LooksAtEveryPlaceOfListedBlocks) {
  const auto listed = [](const std::vector<BlockPlaces>& places) {
    CopySegment segment = Segment(0, 0, 10, 0, 0, static_cast<uint32_t>(places.size()));
    segment.places = places;
    return Validate(segment);
  };
  EXPECT_EQ(listed({{0, 990}, {990, 0}}), std::nullopt);
  EXPECT_EQ(listed({{0, 0}, {991, 0}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(listed({{0, 0}, {0, 991}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(listed({{0, 0}, {kHuge, 0}}), ErrorCode::kOutOfRange);
  EXPECT_EQ(listed({{0, kHuge - 5}}), ErrorCode::kOutOfRange);
}

TEST(CopyBytes, CopiesListedBlocksAndNothingElse) {
  Bytes source;
  Bytes destination;
  for (size_t i = 0; i < kStorageBytes; ++i) source.storage[i] = std::byte(i % 251 + 1);
  const std::vector<BlockPlaces> places = {{100, 0}, {0, 500}, {700, 990}};
  CopySegment segment = Segment(0, 0, 10, 0, 0, 3);
  segment.places = places;
  CopyBytes(segment, source.mapped(), destination.mapped());
  for (size_t i = 0; i < kStorageBytes; ++i) {
    std::byte expected{0};
    for (const BlockPlaces& place : places) {
      if (i >= place.destination && i < place.destination + 10) {
        expected = source.storage[place.source + i - place.destination];
      }
    }
    ASSERT_EQ(destination.storage[i], expected) << i;
  }
}

// A file that was truncated to its first page, and where it is mapped.
class TruncatedFile {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kBytes = 8 * kPage;

  TruncatedFile() : fd_(::memfd_create("truncated", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_.get(), kBytes), 0);
    data_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    EXPECT_NE(data_, MAP_FAILED);
    EXPECT_EQ(::ftruncate(fd_.get(), kPage), 0);
  }
  ~TruncatedFile() { ::munmap(data_, kBytes); }
  TruncatedFile(const TruncatedFile&) = delete;
  TruncatedFile& operator=(const TruncatedFile&) = delete;
  MappedBytes mapped() {
    return {static_cast<std::byte*>(data_), kBytes, /*writable=*/true, /*may_shrink=*/true};
  }

 private:
  UniqueFd fd_;
  void* data_ = nullptr;
};

TEST(CopyBytes, EndsWithAnErrorWhereAFileWasTruncated) {
  constexpr uint64_t kPage = TruncatedFile::kPage;
  InstallFaultGuard();
  TruncatedFile file;
  std::vector<std::byte> storage(TruncatedFile::kBytes);
  const MappedBytes memory = {storage.data(), storage.size(), /*writable=*/true};
  for (const bool streamed : {false, true}) {
    CopySegment all = Segment(0, 0, TruncatedFile::kBytes, 0, 0, 1);
    CopySegment within = Segment(0, 0, kPage, 0, 0, 1);
    all.streamed = within.streamed = streamed;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(CopyBytes(all, file.mapped(), memory), ErrorCode::kFdTooShort);
      EXPECT_EQ(CopyBytes(all, memory, file.mapped()), ErrorCode::kFdTooShort);
      EXPECT_EQ(CopyBytes(within, file.mapped(), memory), std::nullopt);
      EXPECT_EQ(CopyBytes(within, memory, file.mapped()), std::nullopt);
    }
  }
}

TEST(FaultGuardDeathTest, LeavesOtherFaultsAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        InstallFaultGuard();
        TruncatedFile file;
        MappedBytes unguarded = file.mapped();
        unguarded.may_shrink = false;
        std::vector<std::byte> storage(TruncatedFile::kBytes);
        CopyBytes(Segment(0, 0, TruncatedFile::kBytes, 0, 0, 1), unguarded,
                  {storage.data(), storage.size(), /*writable=*/true});
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(FaultGuardDeathTest, EndsTheProcessForASignalThatNoAccessRaised) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        InstallFaultGuard();
        TruncatedFile file;
        const GuardedBytes memory = GuardedBytes{file.mapped().unsealed()};
        RunGuarded(memory, [] { ::raise(SIGBUS); });
        ::_exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

// The sealed side has no page, as memory with a hole, and the other side is what may shrink.
TEST(FaultGuardDeathTest, BlamesNoFileForTheOtherSide) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        InstallFaultGuard();
        TruncatedFile file;
        MappedBytes sealed = file.mapped();
        sealed.may_shrink = false;
        std::vector<std::byte> storage(TruncatedFile::kBytes);
        MappedBytes other;
        other.data = storage.data();
        other.size = storage.size();
        other.writable = other.may_shrink = true;
        CopyBytes(Segment(0, 0, TruncatedFile::kBytes, 0, 0, 1), sealed, other);
        ::_exit(0);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

TEST(CopyBytes, StreamsLongBlocksOfMuchAndNothingElse) {
  constexpr uint64_t kLength = 4 << 10;
  constexpr uint64_t kAll = 8 * kLength;
  std::vector<std::byte> source(kAll);
  for (size_t i = 0; i < kAll; ++i) source[i] = std::byte(i % 251 + 1);
  const std::vector<BlockPlaces> places = {{5, kLength + 3}, {3 * kLength, 4 * kLength}};
  CopySegment listed = Segment(0, 0, kLength, 0, 0, 2);
  listed.places = places;
  listed.streamed = true;
  CopySegment strided = Segment(0, 1, kLength, 2 * kLength, 3 * kLength, 2);
  strided.streamed = true;
  for (const CopySegment& segment : {listed, strided}) {
    ASSERT_TRUE(IsStreamed(segment));
    std::vector<std::byte> streamed(kAll);
    std::vector<std::byte> plain(kAll);
    CopyBytes(segment, {source.data(), kAll}, {streamed.data(), kAll, true});
    CopySegment same = segment;
    same.streamed = false;
    CopyBytes(same, {source.data(), kAll}, {plain.data(), kAll, true});
    FenceStreams();
    EXPECT_EQ(streamed, plain);
  }
  listed.length = kLength - 1;
  EXPECT_FALSE(IsStreamed(listed)) << "shorter ones are not";
}

}  // namespace
}  // namespace gantry::worker
