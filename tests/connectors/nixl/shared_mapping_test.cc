#include "connectors/nixl/agent/shared_mapping.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace gantry::nixl {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMappedBytes = 64 << 10;

// A memfd and where it is mapped.
class MappedMemfd {
 public:
  explicit MappedMemfd(off_t offset = 0, int flags = MAP_SHARED)
      : fd_(::memfd_create("mapping", MFD_CLOEXEC)),
        bytes_(kMappedBytes - static_cast<size_t>(offset)) {
    EXPECT_EQ(::ftruncate(fd_.get(), kMappedBytes), 0);
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, fd_.get(), offset);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~MappedMemfd() { ::munmap(data_, bytes_); }
  MappedMemfd(const MappedMemfd&) = delete;
  MappedMemfd& operator=(const MappedMemfd&) = delete;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  UniqueFd& fd() { return fd_; }

 private:
  UniqueFd fd_;
  size_t bytes_;
  void* data_ = nullptr;
};

TEST(SharedMapping, IsFoundFromAnAddressWithinIt) {
  MappedMemfd memory;
  const auto found = FindSharedMapping(memory.address() + 5000, 1000);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->base, memory.address());
  EXPECT_EQ(found->bytes, kMappedBytes);
  struct stat here = {}, there = {};
  ASSERT_EQ(::fstat(found->fd.get(), &here), 0);
  ASSERT_EQ(::fstat(memory.fd().get(), &there), 0);
  EXPECT_EQ(here.st_ino, there.st_ino);
}

TEST(SharedMapping, IsFoundAcrossPartsOfDifferentProtection) {
  MappedMemfd memory;
  ASSERT_EQ(::mprotect(reinterpret_cast<void*>(memory.address() + 8192), 4096, PROT_READ), 0);
  const auto found = FindSharedMapping(memory.address() + 16384, 4096);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->base, memory.address());
  EXPECT_EQ(found->bytes, kMappedBytes);
}

TEST(SharedMapping, IsRefusedForMemoryOfMalloc) {
  const std::vector<char> memory(1 << 20);
  const auto found = FindSharedMapping(reinterpret_cast<uintptr_t>(memory.data()), memory.size());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNotExportable);
  EXPECT_THAT(found.error().message, HasSubstr("is private to this process"));
  EXPECT_THAT(found.error().hint, HasSubstr("gantry_nixl.host_memory"));
}

TEST(SharedMapping, IsRefusedWhereNothingIsMapped) {
  EXPECT_THAT(FindSharedMapping(4096, 10).error().message, HasSubstr("nothing is mapped"));
}

TEST(SharedMapping, IsRefusedForAPrivateMappingOfAFile) {
  MappedMemfd memory(0, MAP_PRIVATE);
  EXPECT_THAT(FindSharedMapping(memory.address(), 10).error().message, HasSubstr("is private"));
}

TEST(SharedMapping, IsRefusedPastItsEnd) {
  MappedMemfd memory;
  EXPECT_THAT(FindSharedMapping(memory.address() + 1, uint64_t{1} << 40).error().message,
              HasSubstr("goes on past the end"));
}

TEST(SharedMapping, IsRefusedWithoutTheBeginningOfItsFile) {
  MappedMemfd memory(4096);
  EXPECT_THAT(FindSharedMapping(memory.address(), 10).error().message,
              HasSubstr("is mapped from its byte 4096 on"));
}

TEST(SharedMapping, IsFoundByItsPathWhileThatLeadsToIt) {
  char path[] = "/dev/shm/gantry-shared-mapping-XXXXXX";
  UniqueFd fd(::mkostemp(path, O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(::ftruncate(fd.get(), kMappedBytes), 0);
  void* const data = ::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  fd.reset();
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto found = FindSharedMapping(address + 1, 10);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->base, address);
  EXPECT_EQ(::fcntl(found->fd.get(), F_GETFL) & O_ACCMODE, O_RDWR);
  ASSERT_EQ(::ftruncate(found->fd.get(), 4096), 0);
  EXPECT_TRUE(FindSharedMapping(address, 4096));
  EXPECT_EQ(FindSharedMapping(address + 4095, 2).error().code, ErrorCode::kFdTooShort);
  ASSERT_EQ(::unlink(path), 0);
  ::close(::dup2(::open("/dev/null", O_RDWR | O_CLOEXEC), found->fd.get()));
  EXPECT_EQ(FindSharedMapping(address, 10).error().code, ErrorCode::kNotExportable);
  ::munmap(data, kMappedBytes);
}

TEST(SharedMapping, GivesNoMoreAccessThanTheMapping) {
  char path[] = "/dev/shm/gantry-shared-mapping-XXXXXX";
  UniqueFd fd(::mkostemp(path, O_CLOEXEC));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(::ftruncate(fd.get(), kMappedBytes), 0);
  void* const data = ::mmap(nullptr, kMappedBytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(data, MAP_FAILED);
  const auto address = reinterpret_cast<uintptr_t>(data);
  const auto access_of = [&] {
    const auto found = FindSharedMapping(address, 10);
    return found ? ::fcntl(found->fd.get(), F_GETFL) & O_ACCMODE : -1;
  };
  EXPECT_EQ(access_of(), O_RDONLY) << "the descriptor that is open writes";
  UniqueFd reader(::open(path, O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(access_of(), O_RDONLY) << "both are open";
  fd.reset();
  EXPECT_EQ(access_of(), O_RDONLY) << "the path would write";
  reader.reset();
  EXPECT_EQ(access_of(), O_RDONLY) << "the path alone";
  ASSERT_EQ(::mprotect(data, kMappedBytes, PROT_NONE), 0);
  EXPECT_THAT(FindSharedMapping(address, 10).error().message, HasSubstr("is mapped as ---s"));
  ASSERT_EQ(::unlink(path), 0);
  ::munmap(data, kMappedBytes);
}

// A line of maps that has the numbers of a descriptor of this process.
std::string MapsLine(const UniqueFd& fd, const std::string& device, const char* name) {
  struct stat info = {};
  EXPECT_EQ(::fstat(fd.get(), &info), 0);
  char numbers[32];
  std::snprintf(numbers, sizeof(numbers), "%02x:%02x", major(info.st_dev), minor(info.st_dev));
  return "10000000-10010000 rw-s 00000000 " + (device.empty() ? std::string(numbers) : device) +
         " " + std::to_string(info.st_ino) + "   " + name + "\n";
}

TEST(SharedMapping, IsNeverTheFileOfAnotherKindOfMemoryWithItsNumbers) {
  MappedMemfd memory;
  const std::string path =
      ::testing::TempDir() + "shared-mapping-maps-" + std::to_string(::getpid());
  const auto find = [&](const std::string& device, const char* name) {
    std::ofstream(path) << MapsLine(memory.fd(), device, name);
    return host::FindSharedMapping(0x10000000, 10, "take an arena", path.c_str());
  };
  EXPECT_TRUE(find("", "/memfd:mapping (deleted)"));
  EXPECT_THAT(find("", "/SYSV00000000 (deleted)").error().message, HasSubstr("no descriptor can"));
  EXPECT_THAT(find("", "/dev/zero (deleted)").error().message, HasSubstr("no descriptor can"));
  EXPECT_THAT(find("08:01", "/data/pool").error().message, HasSubstr("a file on a disk"));
  ::unlink(path.c_str());
}

TEST(SharedMapping, IsRefusedWhenItsDescriptorIsClosed) {
  MappedMemfd memory;
  memory.fd().reset();
  const auto found = FindSharedMapping(memory.address(), 10);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, HasSubstr("no descriptor of the shared memory"));
}

}  // namespace
}  // namespace gantry::nixl
