#include "client/memory/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/memory/sealed_memfd.h"
#include "tests/client/page_bytes.h"

namespace gantry::client {
namespace {

std::shared_ptr<Arena> MakeArena(uint64_t bytes, void* address = nullptr) {
  return Arena::Map(CreateSealedMemfd("test", bytes).value(), bytes, address, true).value();
}

// Two arenas side by side, mapped by the caller.
struct Neighbours {
  Neighbours() {
    base = kPage + static_cast<std::byte*>(
                       ::mmap(nullptr, 5 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    first = MapAt(base, 2 * kPage);
    second = MapAt(base + 2 * kPage, 2 * kPage);
  }
  ~Neighbours() { ::munmap(base - kPage, 5 * kPage); }

  static std::shared_ptr<Arena> MapAt(std::byte* at, uint64_t bytes) {
    UniqueFd fd = CreateSealedMemfd("test", bytes).value();
    EXPECT_EQ(::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0), at);
    return Arena::Map(std::move(fd), bytes, at, true).value();
  }

  std::byte* base = nullptr;  // a page is mapped before it
  std::shared_ptr<Arena> first, second;
};

TEST(SealedMemfd, IsSealedSizedAndPresent) {
  const UniqueFd fd = CreateSealedMemfd("test", 5 * kPage + 1).value();
  struct stat info = {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_EQ(info.st_size, 6 * kPage);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, 6 * kPage);
  EXPECT_EQ(::fcntl(fd.get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
  EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  EXPECT_NE(::ftruncate(fd.get(), kPage), 0);
}

TEST(SealedMemfd, IsNoStandardStreamAlsoWhereTheseAreClosed) {
  const auto create = [] {
    for (int fd = 0; fd <= 2; ++fd) ::close(fd);
    const auto first = CreateSealedMemfd("test", kPage);
    const auto second = NewMemfd("test", MFD_CLOEXEC);
    const bool close_on_exec = ::fcntl(first->get(), F_GETFD) == FD_CLOEXEC;
    ::_exit(first->get() > 2 && second.get() > 2 && close_on_exec ? 0 : 1);
  };
  EXPECT_EXIT(create(), ::testing::ExitedWithCode(0), "");
}

TEST(SealedMemfd, ManySlicesArePresent) {
  constexpr uint64_t kBytes = (uint64_t{200} << 20) + kPage;
  const UniqueFd fd = CreateSealedMemfd("test", kBytes).value();
  struct stat info = {};
  ASSERT_EQ(::fstat(fd.get(), &info), 0);
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, kBytes);
}

TEST(Arena, OfASparseFileTakesNoPages) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  UniqueFd fd(::memfd_create("sparse", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kBytes), 0);
  const int number = fd.get();
  const auto arena = Arena::Map(std::move(fd), kBytes, nullptr, true).value();
  EXPECT_FALSE(HasEveryPage(number, kBytes));
  arena->data()[0] = std::byte{1};
  struct stat info = {};
  ASSERT_EQ(::fstat(number, &info), 0);
  EXPECT_LT(static_cast<uint64_t>(info.st_blocks) * 512, kBytes / 2) << "some may be huge pages";
}

TEST(SealedMemfd, TooMuchIsRefusedBeforeItHurts) {
  EXPECT_EQ(CreateSealedMemfd("test", 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(CreateSealedMemfd("test", ~uint64_t{0}).error().code, ErrorCode::kInvalidArgument);
  const auto huge = CreateSealedMemfd("test", uint64_t{1} << 45);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(huge.error().hint, "");
}

TEST(SealedMemfd, ChecksWhatCallersBring) {
  bool writable = false;
  const auto code_of = [&](int fd, uint64_t bytes) {
    return CheckMemoryFile(fd, bytes, /*takes_unsealed=*/false, &writable).error().code;
  };
  UniqueFd fd(::memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(fd.get(), kPage), 0);
  EXPECT_EQ(code_of(fd.get(), kPage), ErrorCode::kFdNotSealed);
  EXPECT_TRUE(CheckMemoryFile(fd.get(), kPage, /*takes_unsealed=*/true, &writable));
  EXPECT_EQ(CheckMemoryFile(fd.get(), 2 * kPage, true, &writable).error().code,
            ErrorCode::kFdTooShort);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(code_of(fd.get(), 2 * kPage), ErrorCode::kFdTooShort);
  EXPECT_EQ(code_of(fd.get(), 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(-1, kPage), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(UniqueFd(::open("/proc/self/exe", O_RDONLY)).get(), 1),
            ErrorCode::kNotExportable);
  ASSERT_TRUE(CheckMemoryFile(fd.get(), kPage, false, &writable));
  EXPECT_TRUE(writable);
  const UniqueFd read_only(::open(("/proc/self/fd/" + std::to_string(fd.get())).c_str(), O_RDONLY));
  ASSERT_TRUE(CheckMemoryFile(read_only.get(), kPage, false, &writable));
  EXPECT_FALSE(writable);
}

TEST(ArenaTable, ResolvesInteriorPointers) {
  ArenaTable table;
  const auto arena = MakeArena(4 * kPage);
  ASSERT_TRUE(table.Add(arena));
  const auto extents = table.Resolve(arena->data() + 100, 200);
  ASSERT_TRUE(extents);
  ASSERT_EQ(extents->size(), 1U);
  EXPECT_EQ(extents->front().arena, arena);
  EXPECT_EQ(extents->front().offset, 100U);
  EXPECT_EQ(extents->front().bytes, 200U);
}

TEST(ArenaTable, ToTheLastByteAndNotOneFurther) {
  ArenaTable table;
  const auto arena = MakeArena(4 * kPage);
  ASSERT_TRUE(table.Add(arena));
  EXPECT_TRUE(table.Resolve(arena->data(), 4 * kPage));
  EXPECT_TRUE(table.Resolve(arena->data() + 4 * kPage - 1, 1));
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 4 * kPage + 1}, {4 * kPage, 1}, {4 * kPage - 1, 2}}) {
    EXPECT_EQ(table.Resolve(arena->data() + offset, bytes).error().code, ErrorCode::kNotExportable);
  }
}

TEST(ArenaTable, RefusesWhatIsInNoArena) {
  ArenaTable table;
  int local = 0;
  const auto refused = table.Resolve(&local, sizeof(local));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kNotExportable);
  EXPECT_NE(refused.error().hint.find("arena"), std::string::npos);
  EXPECT_EQ(table.Resolve(nullptr, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(table.Resolve(&local, ~uint64_t{0}).error().code, ErrorCode::kInvalidArgument);
}

TEST(ArenaTable, ARangeRunsFromOneArenaIntoTheNext) {
  ArenaTable table;
  const Neighbours two;
  ASSERT_TRUE(table.Add(two.second));
  ASSERT_TRUE(table.Add(two.first));
  const auto extents = table.Resolve(two.base + kPage, 2 * kPage);
  ASSERT_TRUE(extents);
  ASSERT_EQ(extents->size(), 2U);
  EXPECT_EQ((*extents)[0].arena, two.first);
  EXPECT_EQ((*extents)[0].offset, kPage);
  EXPECT_EQ((*extents)[0].bytes, kPage);
  EXPECT_EQ((*extents)[1].arena, two.second);
  EXPECT_EQ((*extents)[1].offset, 0U);
  EXPECT_EQ((*extents)[1].bytes, kPage);
}

TEST(ArenaTable, ForgetsWhatWasRemoved) {
  ArenaTable table;
  const Neighbours two;
  ASSERT_TRUE(table.Add(two.first));
  ASSERT_TRUE(table.Add(two.second));
  table.Remove(*two.second);
  EXPECT_TRUE(table.Resolve(two.base, 2 * kPage));
  EXPECT_EQ(table.Resolve(two.base, 2 * kPage + 1).error().code, ErrorCode::kNotExportable);
}

TEST(ArenaTable, OneAddressHasOneArena) {
  ArenaTable table;
  const Neighbours two;
  ASSERT_TRUE(table.Add(two.first));
  const auto overlapping =
      Arena::Map(CreateSealedMemfd("test", 2 * kPage).value(), 2 * kPage, two.base + kPage, true)
          .value();
  EXPECT_EQ(table.Add(overlapping).error().code, ErrorCode::kConflict);
  EXPECT_EQ(table.Add(two.first).error().code, ErrorCode::kConflict);
  EXPECT_TRUE(table.Add(two.second));
  const auto before =
      Arena::Map(CreateSealedMemfd("test", 2 * kPage).value(), 2 * kPage, two.base - kPage, true)
          .value();
  EXPECT_EQ(table.Add(before).error().code, ErrorCode::kConflict);
}

}  // namespace
}  // namespace gantry::client
