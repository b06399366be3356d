#include "lib/host/memory_room.h"

#include <gtest/gtest.h>

#include "tests/lib/host/kernel_files.h"

namespace gantry::host {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class MemoryRoomTest : public ::testing::Test {
 protected:
  MemoryRoomTest() {
    files_.Write("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 1024 kB\n");
  }

  void HaveMachine(uint64_t mib) {
    files_.Write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  " + std::to_string(mib << 10) +
                                     " kB\nSwapFree: 99999999 kB\n");
  }
  // A file of the process's own group or of one above it.
  void WriteNumber(const std::string& path, uint64_t mib) {
    files_.Write("sys/fs/cgroup/" + path, std::to_string(mib * kMiB) + "\n");
  }
  uint64_t Room() const { return MemoryRoomOf(files_.root()).bytes / kMiB; }
  std::string Bound() const { return MemoryRoomOf(files_.root()).bound; }

  const KernelFiles files_;
};

TEST_F(MemoryRoomTest, IsTheMachinesWithoutAGroup) {
  EXPECT_EQ(Room(), 1);
  HaveMachine(4096);
  EXPECT_EQ(Room(), 4096);
  EXPECT_EQ(Bound(), "MemAvailable of the machine");
}

TEST_F(MemoryRoomTest, OfVersion2IsWhatIsNotUsed) {
  HaveMachine(4096);
  files_.BeUnified("/");
  files_.Write("sys/fs/cgroup/memory.high", "max\n");
  WriteNumber("memory.max", 256);
  WriteNumber("memory.current", 170);
  EXPECT_EQ(Room(), 86);
  EXPECT_NE(Bound().find("memory.max of "), std::string::npos) << Bound();
  files_.Write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(Room(), 4096);
}

TEST_F(MemoryRoomTest, CountsWhatTheKernelCanDropAsFree) {
  HaveMachine(4096);
  files_.BeUnified("/");
  WriteNumber("memory.max", 256);
  WriteNumber("memory.current", 250);
  const auto mib = [](uint64_t count) { return std::to_string(count * kMiB) + "\n"; };
  files_.Write("sys/fs/cgroup/memory.stat", "anon " + mib(1) + "file " + mib(200) + "shmem " +
                                                mib(50) + "inactive_anon " + mib(99) +
                                                "inactive_file " + mib(100) + "active_file " +
                                                mib(40) + "slab_reclaimable " + mib(3));
  EXPECT_EQ(Room(), 6 + 143);
}

TEST_F(MemoryRoomTest, IsThatOfTheFullestLevel) {
  HaveMachine(4096);
  files_.BeUnified("/pod/main");
  WriteNumber("pod/main/memory.max", 1000);
  WriteNumber("pod/main/memory.current", 100);
  WriteNumber("pod/memory.max", 1200);
  WriteNumber("pod/memory.current", 700);
  EXPECT_EQ(Room(), 500) << "beside another container of the pod";
  EXPECT_NE(Bound().find("cgroup/pod ("), std::string::npos) << Bound();
  WriteNumber("pod/memory.high", 300);
  EXPECT_EQ(Room(), 0) << "the pod is throttled already";
  EXPECT_NE(Bound().find("memory.high of "), std::string::npos) << Bound();
}

TEST_F(MemoryRoomTest, OfVersion1IsWhatIsNotUsed) {
  HaveMachine(4096);
  files_.BeSeparate("/docker/17", "/docker/17");
  WriteNumber("memory/memory.limit_in_bytes", 256);
  WriteNumber("memory/memory.usage_in_bytes", 170);
  EXPECT_EQ(Room(), 86);
  files_.Write("sys/fs/cgroup/memory/memory.stat",
               "inactive_file 1048576\ntotal_inactive_file 2097152\ntotal_active_file 3145728\n"
               "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_EQ(Room(), 91);
  files_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Room(), 4096);
}

TEST_F(MemoryRoomTest, OfVersion1CountsSwapWhereItIsLimitedTogether) {
  HaveMachine(4096);
  files_.BeSeparate("/");
  WriteNumber("memory/memory.limit_in_bytes", 256);
  WriteNumber("memory/memory.usage_in_bytes", 100);
  WriteNumber("memory/memory.memsw.limit_in_bytes", 256);
  WriteNumber("memory/memory.memsw.usage_in_bytes", 200);
  EXPECT_EQ(Room(), 56) << "100 MiB of it are in swap already";
}

TEST_F(MemoryRoomTest, OfVersion1KnowsOfLimitsThatAContainerDoesNotSee) {
  HaveMachine(4096);
  files_.BeSeparate("/pod/17", "/pod/17");
  WriteNumber("memory/memory.usage_in_bytes", 100);
  files_.Write("sys/fs/cgroup/memory/memory.stat",
               "hierarchical_memory_limit " + std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(Room(), 200);
}

TEST_F(MemoryRoomTest, ChecksWithTheKernelsRecords) {
  HaveMachine(128);
  const auto check = [&](uint64_t bytes) { return CheckMemoryRoom(bytes, files_.root()); };
  EXPECT_TRUE(check(0));
  EXPECT_TRUE(check(126 * kMiB));
  const Status full = check(128 * kMiB);
  ASSERT_FALSE(full) << "page tables need room, too";
  EXPECT_EQ(full.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(full.error().message,
            "134217728 bytes of memory were asked for, 134217728 are left by "
            "MemAvailable of the machine");
  EXPECT_FALSE(check(~uint64_t{0}));
}

}  // namespace
}  // namespace gantry::host
