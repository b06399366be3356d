// Lists of block ids that are a byte string of CBOR.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/wire/transfers_body.h"
#include "tests/lib/wire/body_formats.h"

namespace gantry::wire {
namespace {

using nlohmann::json;

// A transfer of which `list` is a byte string.
Result<TransferBody> ReadPacked(const char* list, const std::vector<uint8_t>& packed,
                                const char* other = R"([1, 2])") {
  json transfer = {
      {"workload", "a"}, {"op", "read"}, {"local", {"k"}}, {"remote", {"p/b/k@00000000000000ff"}}};
  transfer["local_blocks"] = transfer["remote_blocks"] = json::parse(other);
  transfer[list] = json::binary(packed);
  const std::vector<uint8_t> bytes = json::to_cbor(transfer);
  return ReadTransferBody(kCbor, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

TEST(PackedListTest, BlockIdsMayBePackedInCbor) {
  const std::vector<uint8_t> packed = {1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff};
  const auto read = ReadPacked("remote_blocks", packed);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->requests.front().remote_blocks, (std::vector<uint64_t>{0x04030201, 0xffffffff}));
  const auto code_and_field = [](const Result<TransferBody>& refused) {
    if (refused) return std::string("accepted");
    return std::string(InfoOf(refused.error().code).name) + " " + refused.error().field;
  };
  EXPECT_EQ(code_and_field(ReadPacked("local_blocks", {1, 0, 0, 0, 2, 0, 0, 0, 3})),
            "malformed_body /local_blocks");
  EXPECT_EQ(code_and_field(ReadPacked("local_blocks", {1, 0, 0, 0, 2})),
            "malformed_body /local_blocks");
  EXPECT_EQ(code_and_field(ReadPacked("local_blocks", {})), "invalid_argument /remote_blocks");
  EXPECT_EQ(code_and_field(ReadPacked("local", packed)), "malformed_body /local");
  EXPECT_EQ(code_and_field(ReadPacked("local_blocks", packed, "[1, 2, 3]")),
            "invalid_argument /remote_blocks");
  const std::vector<uint8_t> too_many(4 * (kBodyElementsMax + 1));
  EXPECT_EQ(code_and_field(ReadPacked("local_blocks", too_many)), "body_too_large /local_blocks");
}

// A transfer by view with both lists packed, and `op` as it is given.
std::string PackedBody(size_t local, size_t remote, const json& op = "read") {
  const json transfer = {{"workload", "w"},
                         {"view", "v"},
                         {"op", op},
                         {"local_blocks", json::binary(std::vector<uint8_t>(4 * local, 7))},
                         {"remote_blocks", json::binary(std::vector<uint8_t>(4 * remote, 9))}};
  const std::vector<uint8_t> bytes = json::to_cbor(transfer);
  return {bytes.begin(), bytes.end()};
}

TEST(PackedListTest, EachIsItsOwn) {
  for (const size_t remote : {1, 2, 5}) {
    const auto read = ReadTransferBody(kCbor, PackedBody(2, remote));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->requests.front().local_blocks, std::vector<uint64_t>(2, 0x07070707));
    EXPECT_EQ(read->requests.front().remote_blocks, std::vector<uint64_t>(remote, 0x09090909));
  }
  const auto not_a_text = ReadTransferBody(kCbor, PackedBody(2, 2, json::binary({})));
  ASSERT_FALSE(not_a_text);
  EXPECT_EQ(not_a_text.error().field, "/op");
}

TEST(PackedListTest, ThoseOfABodyAreLimitedTogether) {
  const size_t half = kBodyElementsMax / 2;
  EXPECT_TRUE(ReadTransferBody(kCbor, PackedBody(half, half)));
  const auto refused = ReadTransferBody(kCbor, PackedBody(half + 1, half));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBodyTooLarge);
  EXPECT_EQ(refused.error().field, "/remote_blocks");
}

}  // namespace
}  // namespace gantry::wire
