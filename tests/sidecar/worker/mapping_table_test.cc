#include "sidecar/worker/process/mapping_table.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <future>
#include <random>
#include <thread>

#include "lib/base/clock.h"
#include "tests/fakes/test_arena.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

memory::HostMapping MappingOf(const TestArena& memory) {
  auto mapping = memory::HostMapping::Create(memory.source().fd->get(), memory.size(), true);
  EXPECT_TRUE(mapping);
  return std::move(*mapping);
}

void ReleaseBoth(MappingTable& table) {
  table.Release(kSourceGuard);
  table.Release(kDestinationGuard);
}

TEST(MappingTable, FindsWhatWasAddedUntilItIsRemoved) {
  const TestArena memory(4096);
  MappingTable table;
  ASSERT_TRUE(table.Add({3, 7}, MappingOf(memory)));
  const auto found = table.Protect(kSourceGuard, {3, 7});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->size, 4096U);
  ReleaseBoth(table);
  ASSERT_TRUE(table.Remove({3, 7}));
  EXPECT_FALSE(table.Protect(kSourceGuard, {3, 7}));
  EXPECT_EQ(table.size(), 0U);
}

TEST(MappingTable, RefusesStaleIds) {
  const TestArena memory(4096);
  MappingTable table;
  ASSERT_TRUE(table.Add({0, 2}, MappingOf(memory)));
  EXPECT_FALSE(table.Protect(kSourceGuard, {0, 1}));
  EXPECT_FALSE(table.Protect(kSourceGuard, {1, 2}));
  EXPECT_FALSE(table.Protect(kSourceGuard, {kMappingSlots, 2}));
  EXPECT_FALSE(table.Protect(kSourceGuard, {~0U, 2}));
  EXPECT_FALSE(table.Remove({0, 1}));
  EXPECT_FALSE(table.Remove({kMappingSlots, 2}));
  EXPECT_FALSE(table.Add({0, 3}, MappingOf(memory))) << "the slot is taken";
  EXPECT_FALSE(table.Add({1, 0}, MappingOf(memory))) << "0 is no generation";
  EXPECT_FALSE(table.Add({kMappingSlots, 1}, MappingOf(memory)));
}

TEST(MappingTable, RemoveWaitsForTheCopyThatUsesIt) {
  // So large that its first page is not mapped again at once by somebody who wants a few.
  const TestArena memory(64 << 20);
  MappingTable table;
  ASSERT_TRUE(table.Add({0, 1}, MappingOf(memory)));
  const auto used = table.Protect(kDestinationGuard, {0, 1});
  ASSERT_TRUE(used);
  auto removed = std::async(std::launch::async, [&] { return table.Remove({0, 1}); });
  // The removal has begun when it is not found any more.
  const TimePoint late = Clock::now() + milliseconds(30'000);
  while (table.Find({0, 1}) && Clock::now() < late) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_FALSE(table.Protect(kSourceGuard, {0, 1})) << "a removed one is not found again";
  EXPECT_EQ(removed.wait_for(milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(::msync(used->data, 4096, MS_ASYNC), 0) << "unmapped under a copy";
  ReleaseBoth(table);
  EXPECT_TRUE(removed.get());
  EXPECT_NE(::msync(used->data, 4096, MS_ASYNC), 0);
}

// The copy thread reads through whatever it finds while the control thread replaces it: with a
// mistake in the order of the two this reads unmapped memory.
TEST(MappingTable, StressOfReplacingUnderCopies) {
  const TestArena memory(4096);
  MappingTable table;
  std::atomic<bool> stop = false;
  std::atomic<uint32_t> current = 0;
  std::atomic<uint64_t> found_count = 0;
  std::thread copies([&] {
    std::minstd_rand random(1);
    while (!stop.load()) {
      const auto side = random() % 2 == 0 ? kSourceGuard : kDestinationGuard;
      const auto found = table.Protect(side, {0, current.load()});
      if (!found) continue;
      ASSERT_EQ(found->data[100], std::byte{memory.data()[100]});
      ++found_count;
      if (random() % 4 == 0) ReleaseBoth(table);
    }
    ReleaseBoth(table);
  });
  // The two take turns: a busy machine needs minutes for as many.
  const TimePoint late = Clock::now() + milliseconds(20'000);
  for (uint32_t id = 1; (id < 3000 && Clock::now() < late) || found_count.load() < 1000; ++id) {
    ASSERT_TRUE(table.Add({0, id}, MappingOf(memory)));
    current = id;
    std::this_thread::yield();
    ASSERT_TRUE(table.Remove({0, id}));
  }
  stop = true;
  copies.join();
}

}  // namespace
}  // namespace gantry::worker
