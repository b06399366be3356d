// The block of malloc that a part of it leads to.
#include "client/memory/malloc_block.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "client/memory/private_pages.h"
#include "tests/client/page_bytes.h"

namespace gantry::client {
namespace {

constexpr uint64_t kBytes = uint64_t{5} << 20;

class PagesAroundPartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::unique_ptr<void, void (*)(void*)> block(std::malloc(kPage), std::free);
    const struct mallinfo2 use = ::mallinfo2();
    if (use.uordblks + use.hblkhd == 0) GTEST_SKIP() << "a sanitizer's malloc";
    ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
    ::malloc_trim(0);
  }

  using Block = std::unique_ptr<char, void (*)(void*)>;
  static Block NewBlock() { return {static_cast<char*>(std::calloc(1, kBytes)), std::free}; }
  static uint64_t Address(const void* data) { return reinterpret_cast<uintptr_t>(data); }
  static Result<ByteRange> PagesAround(const Block& block, uint64_t offset, uint64_t bytes) {
    return PagesAroundPart(Address(block.get()) + offset, bytes);
  }
  // Writes what a header of a block says, at the beginning of a page of the block.
  static void PutHeader(const Block& block, uint64_t page, uint64_t pages) {
    char* const at = block.get() - Address(block.get()) % kPage + page * kPage;
    const uint64_t header[] = {0, pages * kPage | 2};
    std::memcpy(at, header, sizeof(header));
  }
};

TEST_F(PagesAroundPartTest, AreThoseOfTheWholeBlock) {
  const Block block = NewBlock();
  const Block neighbour = NewBlock();  // whose pages may continue those of the block
  const uint64_t begin = Address(block.get()) / kPage * kPage;
  const uint64_t length = (Address(block.get()) + kBytes + kPage - 1) / kPage * kPage - begin;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, 3 * kPage, kBytes / 2, kBytes - 1}) {
    const auto pages = PagesAround(block, offset, 1);
    ASSERT_TRUE(pages.has_value()) << offset << pages.error().message;
    EXPECT_EQ(pages->offset, begin);
    EXPECT_EQ(pages->length, length);
  }
  EXPECT_TRUE(PagesAround(block, kBytes / 2, kBytes / 2).has_value());
}

TEST_F(PagesAroundPartTest, OfAnAlignedBlockAreFound) {
  for (const uint64_t alignment : {uint64_t{64}, kPage, 8 * kPage}) {
    void* aligned = nullptr;
    ASSERT_EQ(::posix_memalign(&aligned, alignment, kBytes), 0);
    const Block block(static_cast<char*>(aligned), std::free);
    const auto pages = PagesAround(block, kBytes - 9, 9);
    ASSERT_TRUE(pages.has_value()) << alignment << pages.error().message;
    EXPECT_LT(pages->offset, Address(aligned));
    EXPECT_GE(pages->offset + pages->length, Address(aligned) + kBytes);
  }
}

TEST_F(PagesAroundPartTest, AreFoundWhereAPartHasHugePages) {
  const Block block = NewBlock();  // as numpy does it
  char* const page = block.get() - Address(block.get()) % kPage + kPage;
  ASSERT_EQ(::madvise(page, 4 << 20, MADV_HUGEPAGE), 0);
  EXPECT_TRUE(PagesAround(block, kBytes / 2, 1).has_value());
}

TEST_F(PagesAroundPartTest, AreFoundWhenTheBlockIsShared) {
  const Block block = NewBlock();
  const ByteRange pages = PagesAround(block, kBytes / 2, 1).value();
  const SharedPages shared = SharePages(pages).value();
  const auto again = PagesAround(block, kBytes / 3, 1);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_EQ(again->offset, pages.offset);
  EXPECT_EQ(again->length, pages.length);
  PutHeader(block, 100, 200);  // as a peer might
  EXPECT_EQ(PagesAround(block, 150 * kPage, kPage).value_or(ByteRange{}).length, pages.length);
  EXPECT_FALSE(PagesAround(block, kBytes / 2, kBytes).has_value());
}

TEST_F(PagesAroundPartTest, AreRefusedWhereBytesLookLikeAnotherHeader) {
  const Block block = NewBlock();
  PutHeader(block, 100, 200);
  EXPECT_TRUE(PagesAround(block, 50 * kPage, kPage).has_value());
  EXPECT_TRUE(PagesAround(block, 310 * kPage, kPage).has_value());
  const auto pages = PagesAround(block, 150 * kPage, kPage);
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.error().code, ErrorCode::kNotExportable);
}

TEST_F(PagesAroundPartTest, AreFoundBesideAHeaderOfMoreThanIsMapped) {
  const Block block = NewBlock();
  const uint64_t length = PagesAround(block, 0, kBytes).value_or(ByteRange{}).length;
  PutHeader(block, 100, uint64_t{1} << 30);
  EXPECT_EQ(PagesAround(block, 150 * kPage, kPage).value_or(ByteRange{}).length, length);
}

TEST_F(PagesAroundPartTest, AreRefusedBehindBytesThatLookLikeAHeader) {
  const Block block = NewBlock();
  PutHeader(block, 100, 200);
  const uint64_t behind = 100 * kPage - Address(block.get()) % kPage + 16;
  const auto pages = PagesAround(block, behind, kPage);
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.error().code, ErrorCode::kNotExportable);
  EXPECT_FALSE(PagesAround(block, behind + 64, kPage).has_value());
}

TEST_F(PagesAroundPartTest, AreNotThoseOfAForgedHeaderInFrontOfThePart) {
  const Block block = NewBlock();
  const ByteRange whole = PagesAround(block, 0, kBytes).value();
  const uint64_t header[] = {7 * kPage, 90 * kPage | 2};  // from page 93 on, to page 190
  char* const at = block.get() - Address(block.get()) % kPage + 100 * kPage;
  std::memcpy(at, header, sizeof(header));
  const auto pages = PagesAroundPart(Address(at) + 16, kPage);
  ASSERT_TRUE(pages.has_value()) << pages.error().message;
  EXPECT_EQ(pages->offset, whole.offset);
  EXPECT_EQ(pages->length, whole.length);
  EXPECT_FALSE(PagesOfBlock(Address(at) + 16, kPage).has_value());
}

TEST_F(PagesAroundPartTest, AreFoundAboveAPageThatCannotBeRead) {
#ifndef MADV_GUARD_INSTALL
  constexpr int MADV_GUARD_INSTALL = 102;
#endif
  const Block block = NewBlock();
  const uint64_t begin = Address(block.get()) / kPage * kPage;
  void* const below = ::mmap(reinterpret_cast<void*>(begin - kPage), kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (below == MAP_FAILED) GTEST_SKIP() << "other memory is below the block";
  const int guarded = ::madvise(below, kPage, MADV_GUARD_INSTALL);
  const auto pages = PagesAround(block, kBytes / 2, kPage);
  ::munmap(below, kPage);
  if (guarded != 0) GTEST_SKIP() << "the kernel has no guard regions";
  ASSERT_TRUE(pages.has_value()) << pages.error().message;
  EXPECT_EQ(pages->offset, begin);
}

TEST_F(PagesAroundPartTest, AreFoundWithoutTouchingOtherMemory) {
  const Block block = NewBlock();
  const uint64_t begin = Address(block.get()) / kPage * kPage;
  void* const below =
      ::mmap(reinterpret_cast<void*>(begin - kBytes), kBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (below == MAP_FAILED) GTEST_SKIP() << "other memory is below the block";
  const Result<SharedPages> shared = SharePages({begin - kBytes, kBytes});  // every page is there
  ASSERT_TRUE(shared.has_value());
  ASSERT_EQ(::fallocate(shared->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, kPage,
                        kBytes - kPage),
            0);
  const auto pages = PagesAround(block, kBytes / 2, kPage);
  struct stat info = {};
  ASSERT_EQ(::fstat(shared->fd.get(), &info), 0);
  ::munmap(below, kBytes);
  EXPECT_EQ(static_cast<uint64_t>(info.st_blocks) * 512, kPage);
  EXPECT_TRUE(pages.has_value());
}

TEST_F(PagesAroundPartTest, AreThoseThatTheWholeBlockLeadsTo) {
  for (const uint64_t bytes : {kBytes, kBytes - 16, kBytes - 17, kBytes - 2000}) {
    const Block block(static_cast<char*>(std::malloc(bytes)), std::free);
    const auto part = PagesAroundPart(Address(block.get()) + bytes / 2, 1);
    const auto whole = PagesOfBlock(Address(block.get()), bytes);
    const auto front = PagesOfBlock(Address(block.get()), kPage);
    ASSERT_TRUE(part && whole && front) << bytes;
    EXPECT_EQ(part->offset, whole->offset);
    EXPECT_EQ(part->length, whole->length) << bytes;
    EXPECT_EQ(part->length, front->length);
  }
}

TEST_F(PagesAroundPartTest, AreRefusedPastTheBlock) {
  const Block block = NewBlock();
  EXPECT_FALSE(PagesAround(block, kBytes / 2, kBytes).has_value());
  const Block small(static_cast<char*>(std::malloc(9000)), std::free);
  EXPECT_FALSE(PagesAround(small, 5000, 10).has_value());
  EXPECT_EQ(PagesAround(block, 0, 0).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(PagesAroundPartTest, OfMemoryThatIsNotOfMallocAreRefused) {
  void* const mapped =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto pages = PagesAroundPart(Address(mapped) + kBytes / 2, kPage);
  EXPECT_FALSE(pages.has_value());
  ::munmap(mapped, kBytes);
}

}  // namespace
}  // namespace gantry::client
