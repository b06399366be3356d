// Streamed copies move the same bytes as plain ones, whatever the addresses and lengths.
#include "sidecar/worker/process/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace gantry::worker {
namespace {

constexpr size_t kStreamBytes = 4096;
constexpr std::byte kCanary{0xee};

std::vector<std::byte> NumberedBytes() {
  std::vector<std::byte> bytes(kStreamBytes);
  for (size_t i = 0; i < kStreamBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

TEST(StreamBytes, MovesEveryLengthBetweenAllAlignmentsAndNothingElse) {
  const std::vector<std::byte> source = NumberedBytes();
  for (size_t to = 0; to < 64; to += 3) {
    for (size_t from = 0; from < 64; from += 7) {
      for (size_t bytes = 0; bytes < 1200; bytes += bytes < 200 ? 1 : 61) {
        std::vector<std::byte> destination(kStreamBytes, kCanary);
        StreamBytes(&destination[to], &source[from], bytes);
        FenceStreams();
        std::vector<std::byte> expected(kStreamBytes, kCanary);
        std::copy_n(&source[from], bytes, &expected[to]);
        ASSERT_EQ(destination, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(StreamBytes, MovesWithinOneAllocation) {
  for (const ptrdiff_t shift : {-700, -64, -1, 0, 1, 64, 700}) {
    std::vector<std::byte> both = NumberedBytes();
    std::vector<std::byte> expected = both;
    std::memmove(&expected[1000 + shift], &expected[1000], 2000);
    StreamBytes(&both[1000 + shift], &both[1000], 2000);
    FenceStreams();
    EXPECT_EQ(both, expected) << shift;
  }
}

}  // namespace
}  // namespace gantry::worker
