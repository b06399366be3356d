#include "sidecar/app/free_heap.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace gantry {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(FreeHeap, OfAnotherThreadsArenaGoesBack) {
  if (ReadHeapUse().allocated_bytes == 0) GTEST_SKIP() << "a sanitizer's malloc";
  // One piece in 64 stays, so that no end of the heap is free.
  std::vector<std::unique_ptr<char[]>> pieces(100 * 1024);
  std::thread([&] {
    for (auto& piece : pieces) piece = std::make_unique<char[]>(1000);
  }).join();
  EXPECT_FALSE(ReturnFreeHeap()) << "all of it is in use";
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i % 64 != 0) pieces[i].reset();
  }
  const HeapUse before = ReadHeapUse();
  ASSERT_GT(before.resident_bytes, before.allocated_bytes + 64 * kMiB);
  EXPECT_TRUE(ReturnFreeHeap());
  const HeapUse after = ReadHeapUse();
  EXPECT_LT(after.resident_bytes, before.resident_bytes - 64 * kMiB);
  EXPECT_FALSE(ReturnFreeHeap()) << "there is nothing more to return";
}

}  // namespace
}  // namespace gantry
