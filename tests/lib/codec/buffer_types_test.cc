#include "lib/codec/buffer_types.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string_view>

namespace gantry::wire {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(BufferTypesTest, NamesGoBothWays) {
  for (const Path path : kPaths) {
    EXPECT_EQ(kPaths[static_cast<size_t>(path)], path);
    EXPECT_EQ(PathByName(NameOf(path)), path);
    EXPECT_NE(PathNames().find(NameOf(path)), std::string::npos);
  }
  EXPECT_EQ(NameOf(Path::kIpc), "ipc");
  EXPECT_EQ(NameOf(Path::kTcp), "tcp");
  EXPECT_FALSE(PathByName("SHM"));
  EXPECT_FALSE(PathByName(""));
  EXPECT_EQ(MemoryKindByName(NameOf(MemoryKind::kHost)), MemoryKind::kHost);
  EXPECT_FALSE(MemoryKindByName("gpu?"));
}

// Sidecars of other versions know these numbers.
TEST(BufferTypesTest, NumbersOfPathsNeverChange) {
  const std::map<std::string_view, uint32_t> numbers = {
      {"ipc", 1}, {"shm", 2}, {"rdma", 3}, {"tcp", 4}, {"bounce", 5}};
  for (const auto& [name, number] : numbers) {
    const auto path = PathByName(name);
    ASSERT_TRUE(path) << name;
    EXPECT_EQ(InfoOf(*path).number, number);
    EXPECT_EQ(PathByNumber(number), path);
  }
  EXPECT_FALSE(PathByNumber(0));
  EXPECT_FALSE(PathByNumber(0xffffffff));
}

TEST(BufferTypesTest, LayoutsFitWithoutWrapping) {
  EXPECT_TRUE(CheckLayout({16, 16, 4}, 64));
  EXPECT_TRUE(CheckLayout({16, 32, 4}, 3 * 32 + 16));  // no stride behind the last
  EXPECT_TRUE(CheckLayout({64, kMax, 1}, 64));
  EXPECT_TRUE(CheckLayout({kMax, kMax, 1}, kMax));
  EXPECT_EQ(CheckLayout({16, 32, 4}, 3 * 32 + 15).error().field, "/layout");
  EXPECT_EQ(CheckLayout({2, uint64_t{1} << 63, 3}, 64).error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(CheckLayout({2, kMax, kBlocksMax}, kMax).error().code, ErrorCode::kOutOfRange);
  EXPECT_TRUE(CheckLayout({1, 1, kBlocksMax}, kBlocksMax));
  EXPECT_EQ(CheckLayout({1, 1, kBlocksMax + 1}, kMax).error().field, "/layout/blocks");
  EXPECT_EQ(CheckLayout({0, 1, 1}, 64).error().field, "/layout/block_bytes");
  EXPECT_EQ(CheckLayout({16, 15, 1}, 64).error().field, "/layout/block_stride");
  EXPECT_EQ(CheckLayout({16, 16, 0}, 64).error().field, "/layout/blocks");
}

}  // namespace
}  // namespace gantry::wire
