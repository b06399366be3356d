#include "sidecar/memory/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "lib/base/unique_fd.h"

namespace gantry::memory {
namespace {

constexpr uint64_t kSize = 64 << 10;

UniqueFd Memfd(uint64_t bytes, int seals) {
  UniqueFd fd(::memfd_create("host-memory-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

UniqueFd Reopen(const UniqueFd& fd, int flags) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  return UniqueFd(::open(path.c_str(), flags | O_CLOEXEC));
}

ErrorCode CodeOf(const Status& status) {
  EXPECT_FALSE(status);
  return status ? ErrorCode::kInternal : status.error().code;
}

TEST(CheckHostFd, AcceptsASealedMemfd) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  EXPECT_TRUE(CheckHostFd(fd.get(), kSize, true));
  EXPECT_TRUE(CheckHostFd(fd.get(), kSize - 1, true));
}

TEST(CheckHostFd, RefusesWhatCanShrinkAndNamesTheWayOut) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_GROW);
  const Status status = CheckHostFd(fd.get(), kSize, true);
  EXPECT_EQ(CodeOf(status), ErrorCode::kFdNotSealed);
  EXPECT_NE(status.error().hint.find("F_SEAL_SHRINK"), std::string::npos);
}

TEST(CheckHostFd, TakesFilesOfTmpfsThatCanShrinkWhereThatIsWanted) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_GROW);
  EXPECT_TRUE(CheckHostFd(fd.get(), kSize, true, Unsealed::kTaken));
  EXPECT_EQ(CodeOf(CheckHostFd(fd.get(), kSize + 1, true, Unsealed::kTaken)),
            ErrorCode::kFdTooShort);
  EXPECT_FALSE(CannotShrink(fd.get()));
  EXPECT_TRUE(CannotShrink(Memfd(kSize, F_SEAL_SHRINK).get()));
  char path[] = "/dev/shm/gantry-host-memory-XXXXXX";
  const UniqueFd file(::mkostemp(path, O_CLOEXEC));
  ASSERT_TRUE(file.valid());
  ASSERT_EQ(::unlink(path), 0);
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  const Status refused = CheckHostFd(file.get(), kSize, true);
  EXPECT_EQ(CodeOf(refused), ErrorCode::kFdNotSealed);
  EXPECT_NE(refused.error().hint.find("--unsealed-memory"), std::string::npos);
  EXPECT_TRUE(CheckHostFd(file.get(), kSize, true, Unsealed::kTaken));
  EXPECT_FALSE(CannotShrink(file.get()));
  const UniqueFd program(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(CodeOf(CheckHostFd(program.get(), 1, false, Unsealed::kTaken)),
            ErrorCode::kNotExportable);
}

TEST(CheckHostFd, RefusesHugePagesThatCanShrinkInAnyCase) {
  const UniqueFd huge(
      ::memfd_create("host-memory-test", MFD_CLOEXEC | MFD_HUGETLB | MFD_ALLOW_SEALING));
  if (!huge.valid()) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(::ftruncate(huge.get(), 2 << 20), 0);
  const Status refused = CheckHostFd(huge.get(), 2 << 20, true, Unsealed::kTaken);
  EXPECT_EQ(CodeOf(refused), ErrorCode::kFdNotSealed);
  EXPECT_NE(refused.error().hint.find("MFD_HUGETLB"), std::string::npos);
}

TEST(HostMapping, TakesWhatItIsToldOfItsFile) {
  const UniqueFd sealed = Memfd(kSize, F_SEAL_SHRINK);
  const UniqueFd open_ended = Memfd(kSize, F_SEAL_GROW);
  EXPECT_FALSE(HostMapping::Create(sealed.get(), kSize, true)->may_shrink());
  HostMapping mapping = *HostMapping::Create(open_ended.get(), kSize, true, Unsealed::kTaken);
  const HostMapping moved = std::move(mapping);
  EXPECT_TRUE(moved.may_shrink());
  ASSERT_EQ(::ftruncate(open_ended.get(), 0), 0);
  EXPECT_TRUE(HostMapping::Create(open_ended.get(), kSize, true, Unsealed::kTaken))
      << "it may be longer later";
}

// An owner that shrinks a file and then seals it, between the question for seals and the mapping.
TEST(HostMapping, StaysGuardedWhereAFileIsSealedOnceItIsShort) {
  const UniqueFd fd(::memfd_create("host-memory-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(fd.get(), kSize), 0);
  ASSERT_FALSE(CannotShrink(fd.get()));
  ASSERT_EQ(::ftruncate(fd.get(), 0), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_TRUE(HostMapping::Create(fd.get(), kSize, true, Unsealed::kTaken)->may_shrink());
  EXPECT_EQ(HostMapping::Create(fd.get(), kSize, true).error().code, ErrorCode::kFdTooShort);
  EXPECT_EQ(CodeOf(CheckNotTruncated(fd.get(), kSize)), ErrorCode::kFdTooShort);
  ASSERT_EQ(::ftruncate(fd.get(), kSize), 0);
  EXPECT_TRUE(CheckNotTruncated(fd.get(), kSize));
}

TEST(CheckHostFd, RefusesAShortFileSayingBothSizes) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  const Status status = CheckHostFd(fd.get(), kSize + 1, true);
  EXPECT_EQ(CodeOf(status), ErrorCode::kFdTooShort);
  EXPECT_NE(status.error().message.find(std::to_string(kSize)), std::string::npos);
  EXPECT_NE(status.error().message.find(std::to_string(kSize + 1)), std::string::npos);
}

TEST(CheckHostFd, RefusesImpossibleSizes) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  EXPECT_EQ(CodeOf(CheckHostFd(fd.get(), 0, true)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(CheckHostFd(fd.get(), ~uint64_t{0}, true)), ErrorCode::kInvalidArgument);
}

TEST(CheckHostFd, TakesAReadOnlyDescriptorForReadingOnly) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  const UniqueFd reader = Reopen(fd, O_RDONLY);
  EXPECT_EQ(CodeOf(CheckHostFd(reader.get(), kSize, true)), ErrorCode::kFdReadOnly);
  EXPECT_TRUE(CheckHostFd(reader.get(), kSize, false));
}

TEST(CheckHostFd, TakesAFileSealedAgainstWritingForReadingOnly) {
  for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK | seal);
    EXPECT_EQ(CodeOf(CheckHostFd(fd.get(), kSize, true)), ErrorCode::kFdReadOnly);
    EXPECT_TRUE(CheckHostFd(fd.get(), kSize, false));
  }
}

TEST(CheckHostFd, RefusesWhatIsNoSharedMemory) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  char path[] = "/var/tmp/gantry-host-memory-XXXXXX";
  const UniqueFd file(::mkstemp(path));
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file.get(), kSize), 0);
  const UniqueFd path_only = Reopen(Memfd(kSize, F_SEAL_SHRINK), O_PATH);
  const UniqueFd write_only = Reopen(Memfd(kSize, F_SEAL_SHRINK), O_WRONLY);
  for (const UniqueFd* fd : {&reader, &file, &path_only, &write_only}) {
    EXPECT_EQ(CodeOf(CheckHostFd(fd->get(), kSize, false)), ErrorCode::kNotExportable);
  }
  EXPECT_EQ(CodeOf(CheckHostFd(-1, kSize, false)), ErrorCode::kNotExportable);
}

TEST(IsPrefaulted, SaysWhetherThePagesExist) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  EXPECT_FALSE(*IsPrefaulted(fd.get(), kSize));
  ASSERT_EQ(::fallocate(fd.get(), 0, 0, kSize), 0);
  EXPECT_TRUE(*IsPrefaulted(fd.get(), kSize));
}

uint64_t BackedBytes(const UniqueFd& fd) {
  struct stat info = {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(HostMapping, PopulatesOnlyWhatTheOwnerHasTouched) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  ASSERT_TRUE(HostMapping::Create(fd.get(), kSize, true));
  EXPECT_EQ(BackedBytes(fd), 0U);
}

TEST(HostMapping, FillsThePageTablesOfExistingPages) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  ASSERT_EQ(::fallocate(fd.get(), 0, 0, kSize), 0);
  const auto mapping = HostMapping::Create(fd.get(), kSize, true);
  ASSERT_TRUE(mapping);
  // /proc/self/pagemap: bit 63 of a page's entry says that it is mapped here.
  const UniqueFd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  const auto page = reinterpret_cast<uintptr_t>(mapping->data()) / 4096;
  for (uint64_t i = 0; i < kSize / 4096; ++i) {
    uint64_t entry = 0;
    ASSERT_EQ(::pread(pagemap.get(), &entry, sizeof(entry), static_cast<off_t>((page + i) * 8)), 8);
    EXPECT_EQ(entry >> 63, 1U) << "page " << i;
  }
}

TEST(HostMapping, SharesBytesAndOutlivesTheDescriptor) {
  UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  auto first = HostMapping::Create(fd.get(), kSize, true);
  auto second = HostMapping::Create(fd.get(), kSize, false);
  ASSERT_TRUE(first && second);
  fd.reset();
  first->data()[kSize - 1] = std::byte{42};
  EXPECT_EQ(second->data()[kSize - 1], std::byte{42});
  EXPECT_FALSE(second->writable());
}

TEST(HostMapping, RefusesToWriteThroughAReadOnlyDescriptor) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  const UniqueFd reader = Reopen(fd, O_RDONLY);
  const auto mapping = HostMapping::Create(reader.get(), kSize, true);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, ErrorCode::kFdReadOnly);
  EXPECT_TRUE(HostMapping::Create(reader.get(), kSize, false));
}

TEST(HostMapping, ChecksTheLengthAgain) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  const auto mapping = HostMapping::Create(fd.get(), 2 * kSize, true);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, ErrorCode::kFdTooShort);
}

TEST(HostMapping, ReadOnlyPagesCannotBeWritten) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  const auto mapping = HostMapping::Create(fd.get(), kSize, false);
  ASSERT_TRUE(mapping);
  EXPECT_DEATH(*const_cast<volatile std::byte*>(mapping->data()) = std::byte{1}, "");
}

TEST(HostMapping, UnmapsWhenItGoes) {
  const UniqueFd fd = Memfd(kSize, F_SEAL_SHRINK);
  std::byte* data = nullptr;
  {
    auto first = HostMapping::Create(fd.get(), kSize, true);
    ASSERT_TRUE(first);
    const HostMapping moved = std::move(*first);
    data = moved.data();
    EXPECT_EQ(::msync(data, kSize, MS_ASYNC), 0);
  }
  EXPECT_NE(::msync(data, kSize, MS_ASYNC), 0);
}

}  // namespace
}  // namespace gantry::memory
