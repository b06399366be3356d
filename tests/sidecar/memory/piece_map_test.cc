#include "sidecar/memory/piece_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace gantry::memory {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(PieceMapTest, LocatesAcrossSeams) {
  const uint64_t sizes[] = {100, 50};
  const auto map = PieceMap::Create({{0, 90, 10}, {1, 5, 20}, {0, 0, 1}}, sizes);
  ASSERT_TRUE(map);
  EXPECT_EQ(map->length(), 31u);
  struct Case {
    uint64_t offset, length;
    Extent extent;
  };
  const Case cases[] = {
      {0, 31, {0, 90, 10}}, {9, 22, {0, 99, 1}}, {10, 21, {1, 5, 20}}, {10, 3, {1, 5, 3}},
      {29, 2, {1, 24, 1}},  {30, 1, {0, 0, 1}},  {4, 2, {0, 94, 2}},
  };
  for (const Case& one : cases) {
    const Extent extent = map->Locate(one.offset, one.length);
    EXPECT_EQ(extent.allocation, one.extent.allocation) << one.offset;
    EXPECT_EQ(extent.offset, one.extent.offset) << one.offset;
    EXPECT_EQ(extent.length, one.extent.length) << one.offset;
  }
}

// Invariant 1: every byte of the flat range, against the sum done by hand.
TEST(PieceMapTest, EveryByteIsWhereItsPieceSays) {
  const uint64_t sizes[] = {64, 64, 64};
  const std::vector<wire::Piece> lists[] = {
      {{2, 7, 13}, {0, 0, 64}, {1, 63, 1}, {2, 7, 5}},
      {{1, 5, 30}},
      {{1, 5, 30}, {0, 1, 7}},
      {{1, 5, 30}, {0, 1, 7}, {2, 0, 64}},
      // As runtimes make virtual memory: equal ones, of which a buffer has parts at its ends.
      {{0, 60, 4}, {1, 0, 64}, {2, 0, 64}, {0, 0, 64}, {1, 0, 9}},
      {{0, 0, 16}, {1, 0, 16}, {2, 0, 16}, {0, 0, 16}},
      {{0, 10, 3}, {1, 0, 8}, {2, 0, 8}, {0, 16, 40}},
      {{0, 10, 3}, {1, 0, 8}, {2, 0, 9}, {0, 16, 8}}};
  for (const std::vector<wire::Piece>& pieces : lists) {
    const auto map = PieceMap::Create(pieces, sizes);
    ASSERT_TRUE(map);
    uint64_t flat = 0;
    for (const wire::Piece& piece : pieces) {
      for (uint64_t i = 0; i < piece.length; ++i, ++flat) {
        const Extent extent = map->Locate(flat, map->length() - flat);
        EXPECT_EQ(extent.allocation, piece.allocation) << flat;
        EXPECT_EQ(extent.offset, piece.offset + i) << flat;
        EXPECT_EQ(extent.length, piece.length - i) << flat;
      }
    }
    EXPECT_EQ(flat, map->length());
  }
}

// Of any length, up to the ends of what 64 bits count: by the index of the piece. The last one is
// shorter than the others, or as much longer as there is room.
TEST(PieceMapTest, EqualPiecesAreFoundAtBothOfTheirEnds) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    const uint64_t length = 1 + random() % (uint64_t{1} << (1 + random() % 61));
    const uint64_t first = 1 + random() % length;
    const uint64_t count = std::min<uint64_t>(1 + random() % 200, (kMax - first) / length);
    std::vector<wire::Piece> pieces = {{0, 0, first}};
    for (uint64_t i = 1; i <= count; ++i) {
      pieces.push_back({static_cast<uint32_t>(i), 0, length});
    }
    const uint64_t end = first + count * length;
    const uint64_t last =
        end == kMax ? 0
                    : 1 + random() % (round % 2 == 0 ? kMax - end : std::min(length, kMax - end));
    if (last > 0) pieces.push_back({static_cast<uint32_t>(count + 1), 0, last});
    const auto map = PieceMap::Create(pieces, std::vector<uint64_t>(pieces.size(), kMax));
    ASSERT_TRUE(map) << map.error().message;
    PieceMap::Cursor cursor(*map);
    for (int i = 0; i < 100; ++i) {
      const uint64_t piece = i == 0 ? pieces.size() - 1 : random() % pieces.size();
      const uint64_t size = piece == 0 ? first : piece <= count ? length : last;
      const uint64_t begin = piece == 0 ? 0 : first + (piece - 1) * length;
      for (const uint64_t within : {uint64_t{0}, size - 1, random() % size}) {
        for (const Extent& found :
             {map->Locate(begin + within, 1), cursor.Locate(begin + within, 1)}) {
          ASSERT_EQ(found.allocation, piece) << length << " " << within;
          ASSERT_EQ(found.offset, within);
          ASSERT_EQ(found.length, 1U);
        }
      }
    }
  }
}

TEST(PieceMapTest, RefusesWhatDoesNotFitWithItsField) {
  const uint64_t sizes[] = {100, kMax};
  const auto field = [&](std::vector<wire::Piece> pieces) {
    const auto map = PieceMap::Create(std::move(pieces), sizes);
    return map ? "accepted" : map.error().field;
  };
  EXPECT_EQ(field({}), "/pieces");
  EXPECT_EQ(field({{0, 0, 1}, {2, 0, 1}}), "/pieces/1/allocation");
  EXPECT_EQ(field({{0, 0, 0}}), "/pieces/0/length");
  EXPECT_EQ(field({{0, 101, 1}}), "/pieces/0/offset");
  EXPECT_EQ(field({{0, 1, 100}}), "/pieces/0/length");
  EXPECT_EQ(field({{0, kMax, kMax}}), "/pieces/0/offset");
  EXPECT_EQ(field({{0, 1, kMax}}), "/pieces/0/length");
  EXPECT_EQ(field({{1, 0, kMax}}), "accepted");
  EXPECT_EQ(field({{1, 0, kMax}, {0, 0, 1}}), "/pieces/1/length");  // their sum wraps
}

}  // namespace
}  // namespace gantry::memory
