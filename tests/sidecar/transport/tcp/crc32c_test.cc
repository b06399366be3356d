#include "sidecar/transport/tcp/channel/crc32c.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace gantry::transport {
namespace {

// Bit by bit, as the definition has it.
uint32_t Slowly(uint32_t before, const uint8_t* bytes, size_t count) {
  uint32_t crc = ~before;
  for (size_t i = 0; i < count; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
  }
  return ~crc;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32cTest, KnownVectors) {
  std::vector<uint8_t> rising(32);
  std::iota(rising.begin(), rising.end(), uint8_t{0});
  const std::vector<uint8_t> falling(rising.rbegin(), rising.rend());
  EXPECT_EQ(Crc32c(0, "", 0), 0u);
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::vector<uint8_t>(32, 0x00).data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::vector<uint8_t>(32, 0xff).data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, rising.data(), 32), 0x46dd794eu);
  EXPECT_EQ(Crc32c(0, falling.data(), 32), 0x113fdb5cu);
}

TEST(Crc32cTest, IsTheSameAtEveryLengthAndPlace) {
  std::vector<uint8_t> bytes(20'000);
  std::mt19937 random(3);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  for (size_t length = 0; length < 10'000; length += 1 + length / 7) {
    for (size_t start = 0; start < 9; ++start) {
      ASSERT_EQ(Crc32c(7, bytes.data() + start, length), Slowly(7, bytes.data() + start, length))
          << length << " bytes at " << start;
    }
  }
}

TEST(Crc32cTest, PartsAddUp) {
  std::vector<uint8_t> bytes(10'000);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const uint32_t whole = Crc32c(0, bytes.data(), bytes.size());
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{3071}, size_t{3072}, size_t{9999}}) {
    const uint32_t first = Crc32c(0, bytes.data(), cut);
    EXPECT_EQ(Crc32c(first, bytes.data() + cut, bytes.size() - cut), whole);
  }
}

}  // namespace
}  // namespace gantry::transport
