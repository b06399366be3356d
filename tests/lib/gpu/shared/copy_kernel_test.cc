// How the grid shares items, where no memory is large enough to see it: each access is written
// down.
#include "lib/gpu/shared/copy_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lib/gpu/shared/gpu_types.h"

namespace gantry::gpu::copy_kernel {
namespace {

constexpr uint64_t kList = 4096;
constexpr uint64_t kFrom = uint64_t{1} << 46;
constexpr uint64_t kTo = uint64_t{1} << 47;

// A list at kList; whatever else is touched is written down, with its length.
struct RecordingMemory {
  std::vector<CopyItem> items;
  std::map<uint64_t, uint64_t> loads, stores;
  uint64_t repeated = 0;

  template <typename T>
  T Load(uint64_t address) {
    EXPECT_EQ(address % sizeof(T), 0U);
    T value = {};
    if (address < kFrom) {
      EXPECT_LE(address - kList + sizeof(T), items.size() * sizeof(CopyItem));
      const auto* list = reinterpret_cast<const char*>(items.data());
      __builtin_memcpy(&value, list + (address - kList), sizeof(T));
    } else {
      repeated += loads.emplace(address, sizeof(T)).second ? 0 : 1;
    }
    return value;
  }
  template <typename T>
  void Store(uint64_t address, T) {
    EXPECT_EQ(address % sizeof(T), 0U);
    repeated += stores.emplace(address, sizeof(T)).second ? 0 : 1;
  }
  void Run(uint32_t lanes, uint64_t warp, uint64_t warps, uint64_t longest) {
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      CopyItems(*this, {.lane = lane, .lanes = lanes, .warp = warp, .warps = warps}, kList,
                static_cast<uint32_t>(items.size()), longest);
    }
  }
};

// Offsets and lengths of accesses from `base` on, those that follow each other as one.
std::map<uint64_t, uint64_t> Joined(const std::map<uint64_t, uint64_t>& accesses, uint64_t base) {
  std::map<uint64_t, uint64_t> joined;
  for (const auto& [address, bytes] : accesses) {
    const uint64_t offset = address - base;
    if (!joined.empty() && joined.rbegin()->first + joined.rbegin()->second == offset) {
      joined.rbegin()->second += bytes;
    } else {
      joined.emplace(offset, bytes);
    }
  }
  return joined;
}

TEST(CopyKernelTest, EveryByteIsMovedOnceByHoweverManyWarps) {
  const std::vector<std::pair<uint64_t, uint64_t>> pieces = {
      {0, 5}, {100, 40'000}, {50'003, 16'384}, {70'001, 1}, {80'000, 16'385}};
  for (const uint32_t lanes : {32U, 64U}) {
    for (const uint64_t warps : {1, 2, 3, 7, 64}) {
      SCOPED_TRACE(std::to_string(lanes) + " lanes, warps: " + std::to_string(warps));
      RecordingMemory memory;
      std::map<uint64_t, uint64_t> wanted;
      for (const auto& [offset, bytes] : pieces) {
        memory.items.push_back({DeviceAddress{kTo + offset}, DeviceAddress{kFrom + offset}, bytes});
        wanted.emplace(offset, bytes);
      }
      for (uint64_t warp = 0; warp < warps; ++warp) memory.Run(lanes, warp, warps, 40'000);
      EXPECT_EQ(memory.repeated, 0U);
      EXPECT_EQ(Joined(memory.loads, kFrom), wanted);
      EXPECT_EQ(Joined(memory.stores, kTo), wanted);
    }
  }
}

TEST(CopyKernelTest, AnItemBeyondFourGiBIsSharedToItsEnd) {
  constexpr uint64_t kBytes = (uint64_t{5} << 30) + 3;
  constexpr uint64_t kTile = 16384;
  constexpr uint64_t kWarps = 16384;
  constexpr uint64_t kStep = TileStep(1, TilesPerItem(kBytes), kWarps);
  static_assert(kStep == kWarps - 1);
  constexpr uint64_t kLastTile = kBytes / kTile;
  for (const uint64_t warp : {uint64_t{0}, kLastTile % kStep, kStep - 1}) {
    RecordingMemory memory;
    memory.items.push_back({DeviceAddress{kTo}, DeviceAddress{kFrom}, kBytes});
    memory.Run(32, warp, kWarps, kBytes);
    std::map<uint64_t, uint64_t> wanted;
    for (uint64_t tile = warp; tile <= kLastTile; tile += kStep)
      wanted.emplace(tile * kTile, tile == kLastTile ? 3 : kTile);
    EXPECT_EQ(memory.repeated, 0U);
    EXPECT_EQ(Joined(memory.loads, kFrom), wanted);
    EXPECT_EQ(Joined(memory.stores, kTo), wanted);
  }
}

// One longer item must not leave every other warp without work.
TEST(CopyKernelTest, WarpsShareItemsThatAreShorterThanTheLongest) {
  constexpr uint64_t kWarps = 64;
  std::vector<uint64_t> moved;
  for (uint64_t warp = 0; warp < kWarps; ++warp) {
    RecordingMemory memory;
    for (uint64_t i = 0; i < 1000; ++i) {
      memory.items.push_back({DeviceAddress{kTo + 8192 * i}, DeviceAddress{kFrom + 8192 * i},
                              i == 500 ? uint64_t{8192} : uint64_t{4096}});
    }
    memory.Run(32, warp, kWarps, 8192);
    uint64_t bytes = 0;
    for (const auto& [offset, length] : Joined(memory.stores, kTo)) bytes += length;
    moved.push_back(bytes);
  }
  EXPECT_EQ(moved.back(), 0U) << "the last one has none, so that the step is odd";
  moved.pop_back();
  const auto [least, most] = std::minmax_element(moved.begin(), moved.end());
  EXPECT_LE(*most - *least, 4U * 2048) << *least << " to " << *most;
}

TEST(CopyKernelTest, WarpsWithATileEachAllHaveOne) {
  EXPECT_EQ(TileStep(16, 4, 64), 64U);
  EXPECT_EQ(TileStep(17, 4, 64), 63U);
  EXPECT_EQ(TileStep(64, 1, 64), 64U);
  EXPECT_EQ(TileStep(65, 1, 64), 63U);
  EXPECT_EQ(TileStep(65, 1, 63), 63U);
  EXPECT_EQ(TileStep(1, 1, 1), 1U);
  EXPECT_EQ(TileStep(9, 9, 1), 1U);
  EXPECT_EQ(TileStep(0, 9, 2), 2U);
}

TEST(CopyKernelTest, AGridHasAWarpForEachTileAndOneBlockForEachMultiprocessorAtMost) {
  constexpr uint64_t kMax = ~uint64_t{0};
  constexpr uint32_t kMaxCount = ~uint32_t{0};
  EXPECT_EQ(BlocksFor(1, 1, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(16, 2048, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(17, 2048, 132, 16), 2U);
  EXPECT_EQ(BlocksFor(8, 4096, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(2, 16384, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(3, 16384, 132, 16), 2U);
  EXPECT_EQ(BlocksFor(8, 16385, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(1, 16 * 16384, 132, 16), 1U);
  EXPECT_EQ(BlocksFor(1, 16 * 16384 + 1, 132, 16), 2U);
  EXPECT_EQ(BlocksFor(132 * 16, 4096, 132, 16), 132U);
  EXPECT_EQ(BlocksFor(100'000, 512, 132, 16), 132U);
  EXPECT_EQ(BlocksFor(1U << 31, 16385, 132, 16), 132U);
  EXPECT_EQ(BlocksFor(1, kMax, 132, 16), 132U);
  EXPECT_EQ(BlocksFor(kMaxCount, kMax, 132, 16), 132U);
  EXPECT_EQ(BlocksFor(kMaxCount, 1, 132, 16), 132U);
}

}  // namespace
}  // namespace gantry::gpu::copy_kernel
