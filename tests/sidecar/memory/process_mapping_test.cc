#include "sidecar/memory/process_mapping.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "sidecar/memory/mapped_allocation.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_arena.h"

namespace gantry::memory {
namespace {

using testing::TestArena;

AllocationSource SourceOf(const TestArena& arena, bool writable = true) {
  return {wire::MemoryKind::kHost, std::make_shared<const UniqueFd>(arena.Fd()), arena.size(),
          writable};
}

// How often this process has the file mapped.
int MappingsOf(const UniqueFd& fd) {
  const std::string inode = std::to_string([&] {
    struct stat info = {};
    ::fstat(fd.get(), &info);
    return info.st_ino;
  }());
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(" " + inode + " ") != std::string::npos) ++count;
  }
  return count;
}

TEST(ProcessMappingTest, ShowsTheBytesAndTakesWrites) {
  TestArena arena(64 * 1024);
  const AllocationSource source = SourceOf(arena);
  const ProcessMapping mapping(source);
  const auto bytes = mapping.Bytes();
  ASSERT_TRUE(bytes);
  ASSERT_EQ(bytes->size(), arena.size());
  EXPECT_EQ(std::memcmp(bytes->data(), arena.data(), arena.size()), 0);
  (*bytes)[4097] = std::byte{0x5a};
  EXPECT_EQ(arena.data()[4097], 0x5a);
}

TEST(ProcessMappingTest, GivesDevicesAloneTheBytesOfAFileThatCanShrink) {
  TestArena arena(64 * 1024, TestArena::Unsealed());
  CountingMapper mapper;
  const auto allocation = *MappedAllocation::Create(mapper, SourceOf(arena));
  EXPECT_TRUE(allocation->unsealed());
  EXPECT_TRUE(allocation->for_workers_only());
  const auto refused = allocation->in_process().Bytes();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  const auto given = allocation->in_process().BytesForDevices();
  ASSERT_TRUE(given);
  EXPECT_EQ(given->size(), arena.size());
  EXPECT_FALSE(allocation->in_process().Bytes()) << "also once it is mapped";
  EXPECT_FALSE((*MappedAllocation::Create(mapper, SourceOf(TestArena(4096))))->for_workers_only());
}

TEST(ProcessMappingTest, OneMappingForAllWhoAskAtTheSameTime) {
  TestArena arena(1 << 20);
  const AllocationSource source = SourceOf(arena);
  const ProcessMapping mapping(source);
  std::vector<std::byte*> seen(8);
  {
    std::vector<std::jthread> threads;
    for (auto& address : seen) {
      threads.emplace_back([&address, &mapping] {
        address = mapping.Bytes()->data();
        (void)mapping.Populate();
      });
    }
  }
  EXPECT_EQ(std::set<std::byte*>(seen.begin(), seen.end()).size(), 1u);
  EXPECT_EQ(MappingsOf(*source.fd), 2);  // the arena's own and this one
}

TEST(ProcessMappingTest, PopulatingIsClaimedOnceAndFillsWhatTheOwnerTouched) {
  TestArena arena(1 << 20);
  const AllocationSource source = SourceOf(arena);
  const ProcessMapping mapping(source);
  EXPECT_TRUE(mapping.ClaimPopulating());
  EXPECT_FALSE(mapping.ClaimPopulating());
  EXPECT_TRUE(*mapping.Populate());
}

TEST(ProcessMappingTest, GoesWithItsAllocationAndIsNotMadeUnasked) {
  TestArena arena(1 << 20);
  CountingMapper mapper;
  const AllocationSource source = SourceOf(arena);
  auto allocation = *MappedAllocation::Create(mapper, source);
  EXPECT_EQ(MappingsOf(*source.fd), 1);
  ASSERT_TRUE(allocation->in_process().Bytes());
  EXPECT_EQ(MappingsOf(*source.fd), 2);
  allocation.reset();
  EXPECT_EQ(MappingsOf(*source.fd), 1);
}

TEST(ProcessMappingTest, AFailureIsAnErrorAndNotAMapping) {
  TestArena arena(4096);
  AllocationSource source = SourceOf(arena);
  source.fd = std::make_shared<const UniqueFd>(arena.ReadOnlyFd());
  const ProcessMapping mapping(source);
  const auto bytes = mapping.Bytes();
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kFdReadOnly);
}

}  // namespace
}  // namespace gantry::memory
