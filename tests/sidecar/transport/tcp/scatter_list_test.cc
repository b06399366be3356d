#include "sidecar/transport/tcp/channel/scatter_list.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "sidecar/transport/tcp/channel/crc32c.h"

namespace gantry::transport {
namespace {

TEST(ScatterListTest, AdvancesThroughItsPartsAndSumsThem) {
  std::vector<std::byte> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  ScatterList list;
  list.Add(bytes.data() + 500, 100);
  list.Add(bytes.data() + 600, 50);  // goes on where the one before ends
  list.Add(bytes.data(), 10);
  EXPECT_EQ(list.total(), 160u);
  std::array<iovec, 8> parts;
  ASSERT_EQ(list.Fill(parts.data(), 8, UINT64_MAX), 2);
  EXPECT_EQ(parts[0].iov_len, 150u);
  EXPECT_EQ(list.Fill(parts.data(), 1, 20), 1);
  EXPECT_EQ(parts[0].iov_len, 20u);
  list.Advance(145, true);
  ASSERT_EQ(list.Fill(parts.data(), 8, UINT64_MAX), 2);
  EXPECT_EQ(parts[0].iov_base, bytes.data() + 645);
  EXPECT_EQ(parts[0].iov_len, 5u);
  list.Advance(15, true);
  EXPECT_TRUE(list.done());
  uint32_t crc = Crc32c(0, bytes.data() + 500, 150);
  crc = Crc32c(crc, bytes.data(), 10);
  EXPECT_EQ(list.crc(), crc);
  EXPECT_EQ(list.WholeCrc(), crc);
  list.Rewind();
  EXPECT_EQ(list.left(), 160u);
  EXPECT_EQ(list.crc(), 0u);
}

}  // namespace
}  // namespace gantry::transport
