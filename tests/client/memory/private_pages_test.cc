// Private pages that a memfd takes the place of: same bytes, same addresses; and what is refused.
#include "client/memory/private_pages.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/memory/malloc_block.h"
#include "lib/host/memory_room.h"
#include "lib/host/own_mappings.h"
#include "tests/client/page_bytes.h"

namespace gantry::client {
namespace {

constexpr uint64_t kLarge = uint64_t{40} << 20;

// Malloc maps kLarge by itself from now on, whatever came before.
void LetMallocMapLargeBlocks() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::malloc_trim(0);
}

// Private memory of mmap, with a page that is not mapped on either side.
class Mapped {
 public:
  explicit Mapped(uint64_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS)
      : bytes_(pages * kPage),
        around_(static_cast<std::byte*>(
            ::mmap(nullptr, bytes_ + 2 * kPage, PROT_READ | PROT_WRITE, flags, -1, 0))) {
    ::munmap(around_, kPage);
    ::munmap(around_ + kPage + bytes_, kPage);
  }
  ~Mapped() { ::munmap(data(), bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  std::byte* data() const { return around_ + kPage; }
  ByteRange pages() const { return {reinterpret_cast<uintptr_t>(data()), bytes_}; }

 private:
  uint64_t bytes_;
  std::byte* around_;
};

void Fill(std::byte* data, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 7 + i / kPage);
}

ino_t InodeOf(const UniqueFd& fd) {
  struct stat info = {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  return info.st_ino;
}

template <typename T>
Error ErrorOf(const Result<T>& result) {
  return result ? Error(ErrorCode::kInternal, "it succeeded") : result.error();
}

bool MallocIsOfASanitizer() {
  const std::unique_ptr<void, void (*)(void*)> block(std::malloc(kPage), std::free);
  const struct mallinfo2 use = ::mallinfo2();
  return use.uordblks + use.hblkhd == 0;
}

uint64_t Address(const void* data) { return reinterpret_cast<uintptr_t>(data); }

TEST(PrivatePages, AreSharedInPlaceWithTheirBytes) {
  const Mapped memory(5);
  Fill(memory.data(), 5 * kPage);
  const std::vector<std::byte> before(memory.data(), memory.data() + 5 * kPage);
  const SharedPages shared = SharePages(memory.pages()).value();
  EXPECT_EQ(shared.address, memory.pages().offset);
  EXPECT_EQ(shared.bytes, 5 * kPage);
  EXPECT_EQ(std::memcmp(memory.data(), before.data(), before.size()), 0);
  EXPECT_TRUE(ShowsFile(shared.fd.get(), shared.address, shared.bytes));

  memory.data()[2 * kPage] = std::byte{0x5a};
  std::byte seen{};
  ASSERT_EQ(::pread(shared.fd.get(), &seen, 1, 2 * kPage), 1);
  EXPECT_EQ(seen, std::byte{0x5a});
  const std::byte written{0xa5};
  ASSERT_EQ(::pwrite(shared.fd.get(), &written, 1, 4 * kPage), 1);
  EXPECT_EQ(memory.data()[4 * kPage], written);
}

TEST(PrivatePages, CannotShrinkAndAreAllPresent) {
  const Mapped memory(3);  // never touched
  const SharedPages shared = SharePages(memory.pages()).value();
  EXPECT_NE(::ftruncate(shared.fd.get(), kPage), 0);
  struct stat info = {};
  ASSERT_EQ(::fstat(shared.fd.get(), &info), 0);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, 3 * kPage);
  EXPECT_EQ(memory.data()[kPage], std::byte{0});
}

TEST(PrivatePages, OfSeveralSlicesAreOneFile) {
  constexpr uint64_t kPages = (uint64_t{130} << 20) / kPage;
  const Mapped memory(kPages);
  for (uint64_t page = 0; page < kPages; ++page)
    std::memcpy(memory.data() + page * kPage, &page, 8);
  const SharedPages shared = SharePages(memory.pages()).value();
  EXPECT_TRUE(ShowsFile(shared.fd.get(), shared.address, shared.bytes));
  uint64_t wrong = 0;
  for (uint64_t page = 0; page < kPages; ++page) {
    wrong += std::memcmp(memory.data() + page * kPage, &page, 8) != 0 ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST(PrivatePages, AreFoundAgainWhileADescriptorIsOpen) {
  const Mapped memory(4);
  Fill(memory.data(), 4 * kPage);
  SharedPages first = SharePages(memory.pages()).value();
  const ino_t inode = InodeOf(first.fd);
  const SharedPages again = SharePages({memory.pages().offset + kPage, 2 * kPage}).value();
  EXPECT_EQ(InodeOf(again.fd), inode);
  EXPECT_EQ(again.address, memory.pages().offset);
  EXPECT_EQ(again.bytes, 3 * kPage);
}

TEST(PrivatePages, AreReplacedAnewWhenNoDescriptorIsLeft) {
  const Mapped memory(4);
  Fill(memory.data(), 4 * kPage);
  const std::vector<std::byte> before(memory.data(), memory.data() + 4 * kPage);
  SharedPages first = SharePages(memory.pages()).value();
  const ino_t inode = InodeOf(first.fd);
  first.fd.reset();
  const SharedPages again = SharePages(memory.pages()).value();
  EXPECT_NE(InodeOf(again.fd), inode);
  EXPECT_EQ(std::memcmp(memory.data(), before.data(), before.size()), 0);
}

TEST(PrivatePages, OfWhichAPartIsSharedAreAConflict) {
  const Mapped memory(4);
  for (const uint64_t offset : {uint64_t{0}, kPage}) {
    const SharedPages part = SharePages({memory.pages().offset + offset, kPage}).value();
    EXPECT_EQ(ErrorOf(SharePages(memory.pages())).code, ErrorCode::kConflict) << offset;
  }
}

TEST(PrivatePages, WhoseFrontWasMappedAnewAreAConflict) {
  const Mapped memory(4);
  const SharedPages shared = SharePages(memory.pages()).value();
  ASSERT_NE(::mmap(memory.data(), kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_EQ(ErrorOf(SharePages({memory.pages().offset + kPage, 3 * kPage})).code,
            ErrorCode::kConflict);
}

TEST(PrivatePages, ThatAreUnmappedDoNotShowTheFileAnyMore) {
  const Mapped memory(2);
  const SharedPages shared = SharePages(memory.pages()).value();
  ASSERT_NE(::mmap(memory.data(), kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  EXPECT_FALSE(ShowsFile(shared.fd.get(), shared.address, shared.bytes));
}

TEST(PrivatePages, AThousandTimesLeaveNothingBehind) {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
  };
  const auto before = entries("/proc/self/fd");
  for (int i = 0; i < 1000; ++i) {
    const Mapped memory(2);
    memory.data()[kPage] = std::byte{1};
    EXPECT_TRUE(SharePages(memory.pages()).has_value());
  }
  EXPECT_EQ(entries("/proc/self/fd"), before);
}

TEST(PrivatePages, AreRefusedByKind) {
  struct Kind {
    const char* what;
    int (*make)(std::byte* data);
    ErrorCode code;
  };
  // Sanitizers take the place of mlock, and do nothing.
  const Kind kinds[] = {
      {"is locked",
       [](std::byte* data) { return static_cast<int>(::syscall(SYS_mlock, data, kPage)); },
       ErrorCode::kNotExportable},
      {"is kept from children",
       [](std::byte* data) { return ::madvise(data, kPage, MADV_DONTFORK); },
       ErrorCode::kNotExportable},
      {"is wiped in children",
       [](std::byte* data) { return ::madvise(data, kPage, MADV_WIPEONFORK); },
       ErrorCode::kNotExportable},
      {"is r--p", [](std::byte* data) { return ::mprotect(data, kPage, PROT_READ); },
       ErrorCode::kNotExportable},
      {"is rwxp",
       [](std::byte* data) { return ::mprotect(data, kPage, PROT_READ | PROT_WRITE | PROT_EXEC); },
       ErrorCode::kNotExportable},
      {"has a hole", [](std::byte* data) { return ::munmap(data, kPage); },
       ErrorCode::kInvalidArgument},
  };
  for (const Kind& kind : kinds) {
    const Mapped memory(3);
    Fill(memory.data(), 3 * kPage);
    ASSERT_EQ(kind.make(memory.data() + kPage), 0) << kind.what;
    const Error error = ErrorOf(SharePages(memory.pages()));
    EXPECT_EQ(error.code, kind.code) << kind.what << ": " << error.message;
    EXPECT_NE(error.message.find(kind.what), std::string::npos) << error.message;
    EXPECT_FALSE(error.hint.empty()) << kind.what;
    EXPECT_EQ(host::MappingsOf(memory.pages().offset, memory.pages().offset + kPage)->front().inode,
              0U);
  }
}

TEST(PrivatePages, AreNotSharedOnes) {
  const Mapped shared(2, MAP_SHARED | MAP_ANONYMOUS);
  EXPECT_NE(ErrorOf(SharePages(shared.pages())).message.find("is shared already"),
            std::string::npos);
}

TEST(PrivatePages, AreNotHugeOnesAndNoStack) {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  void* const huge = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  ASSERT_NE(huge, MAP_FAILED);
  EXPECT_NE(ErrorOf(SharePages({Address(huge), kHuge})).message.find("hugetlb"), std::string::npos);
  ::munmap(huge, kHuge);
  const uint64_t page = Address(__builtin_frame_address(0)) / kPage * kPage;
  EXPECT_EQ(ErrorOf(SharePages({page, kPage})).code, ErrorCode::kNotExportable);
}

TEST(PrivatePages, AreNotInAHeapOfMalloc) {
  if (MallocIsOfASanitizer()) GTEST_SKIP() << "a sanitizer's malloc";
  const auto share = [] {
    const std::unique_ptr<void, void (*)(void*)> block(std::aligned_alloc(kPage, 4 * kPage),
                                                       std::free);
    EXPECT_NE(ErrorOf(SharePages({Address(block.get()), 4 * kPage}))
                  .message.find("is in a heap of malloc"),
              std::string::npos);
  };
  share();
  std::thread(share).join();  // it has a heap of its own
}

TEST(PrivatePages, AreNotOfAFile) {
  char path[] = "/tmp/private-pages-XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file.get(), kPage), 0);
  void* const data = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.get(), 0);
  EXPECT_NE(ErrorOf(SharePages({Address(data), kPage})).message.find("is of a file"),
            std::string::npos);
  ::munmap(data, kPage);
}

TEST(PrivatePages, ThatNoMemoryIsLeftForAreRefusedAtOnce) {
  const uint64_t bytes = (2 * host::MemoryRoomOf().bytes) / kPage * kPage;
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(data, MAP_FAILED);
  EXPECT_EQ(ErrorOf(SharePages({Address(data), bytes})).code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(host::MappingsOf(Address(data), Address(data) + kPage)->front().inode, 0U);
  ::munmap(data, bytes);
}

TEST(PrivatePages, MeetALimitOfFileSizesWithoutASignal) {
  const auto share = [](rlim_t bytes) {
    const Mapped memory(8);
    const rlimit limit = {bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::_exit(ErrorOf(SharePages(memory.pages())).code == ErrorCode::kResourceExhausted ? 0 : 1);
  };
  for (const rlim_t bytes : {rlim_t{0}, rlim_t{kPage}, rlim_t{1} << 40}) {  // realloc would pass it
    EXPECT_EXIT(share(bytes), ::testing::ExitedWithCode(0), "") << bytes;
  }
}

TEST(PagesOfBlock, AreFoundUnderALimitOfFileSizesWithoutASignal) {
  LetMallocMapLargeBlocks();
  const auto look = [] {
    void* const block = std::malloc(kLarge);
    const rlimit limit = {0, 0};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const bool found = PagesOfBlock(Address(block), kLarge).has_value();
    ::_exit(found != MallocIsOfASanitizer() ? 0 : 1);
  };
  EXPECT_EXIT(look(), ::testing::ExitedWithCode(0), "");
}

TEST(PagesOfBlock, AreThoseOfABlockThatMallocHasMapped) {
  if (MallocIsOfASanitizer()) GTEST_SKIP() << "a sanitizer's malloc";
  LetMallocMapLargeBlocks();
  void* aligned = nullptr;
  ASSERT_EQ(::posix_memalign(&aligned, 64, kLarge), 0);
  void* page_aligned = nullptr;
  ASSERT_EQ(::posix_memalign(&page_aligned, kPage, kLarge + 1), 0);
  for (void* block : {std::malloc(kLarge), std::calloc(1, kLarge), aligned, page_aligned}) {
    const auto pages = PagesOfBlock(Address(block), kLarge + (block == page_aligned ? 1 : 0));
    ASSERT_TRUE(pages.has_value()) << pages.error().message;
    EXPECT_LE(pages->offset, Address(block));
    EXPECT_GE(pages->offset + pages->length, Address(block) + kLarge);
    std::free(block);
  }
}

TEST(PagesOfBlock, AreNotThoseThatOthersMayHave) {
  LetMallocMapLargeBlocks();
  const std::unique_ptr<char, void (*)(void*)> small(static_cast<char*>(std::malloc(9000)),
                                                     std::free);
  EXPECT_EQ(ErrorOf(PagesOfBlock(Address(small.get()), 9000)).code, ErrorCode::kNotExportable);
  const std::unique_ptr<char, void (*)(void*)> large(static_cast<char*>(std::malloc(kLarge)),
                                                     std::free);
  EXPECT_FALSE(PagesOfBlock(Address(large.get()) + 8, 9000).has_value());  // its end is not known
  EXPECT_FALSE(PagesOfBlock(Address(large.get()), 2 * kLarge).has_value());
  const Mapped memory(3);
  const uint64_t at = memory.pages().offset;
  EXPECT_EQ(ErrorOf(PagesOfBlock(at, 3 * kPage)).code, ErrorCode::kNotExportable);
  EXPECT_TRUE(PagesOfMapping(at, 3 * kPage).has_value());
  EXPECT_FALSE(PagesOfMapping(at, 3 * kPage - 1).has_value());
  EXPECT_FALSE(PagesOfMapping(at + 1, 3 * kPage - 1).has_value());
  EXPECT_EQ(ErrorOf(PagesOfBlock(at, 0)).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(PagesOfBlock(at, UINT64_MAX)).code, ErrorCode::kInvalidArgument);
}

TEST(PagesOfBlock, OfMallocCanBeReallocatedAndFreed) {
  if (MallocIsOfASanitizer()) GTEST_SKIP() << "a sanitizer's malloc";
  LetMallocMapLargeBlocks();
  auto* block = static_cast<std::byte*>(std::malloc(kLarge));
  Fill(block, kLarge);
  const std::vector<std::byte> before(block, block + kLarge);
  SharedPages shared = SharePages(PagesOfBlock(Address(block), kLarge).value()).value();
  block = static_cast<std::byte*>(std::realloc(block, 3 * kLarge));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(std::memcmp(block, before.data(), kLarge), 0);
  // Behind the pages that the memfd had; volatile, as nothing reads them.
  for (uint64_t at = kLarge; at < 3 * kLarge; at += kPage) {
    *static_cast<volatile std::byte*>(block + at) = std::byte{1};
  }
  const uint64_t address = Address(block);
  std::free(block);
  EXPECT_FALSE(
      host::MappingsOf(address / kPage * kPage, address / kPage * kPage + kPage).has_value());
}

}  // namespace
}  // namespace gantry::client
