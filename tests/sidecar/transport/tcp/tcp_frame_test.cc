#include "sidecar/transport/tcp/channel/tcp_frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "sidecar/transport/tcp/channel/crc32c.h"

namespace gantry::transport {
namespace {

using HeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text));
}

FrameHeader SomeHeader() {
  FrameHeader header;
  header.type = FrameType::kWrite;
  header.has_payload_crc = true;
  header.control_bytes = 77;
  header.payload_bytes = 4096;
  header.request = 0x0102030405060708;
  header.clock = 99;
  header.payload_crc = 5;
  header.control_crc = 6;
  return header;
}

HeaderBytes Encoded(const FrameHeader& header) {
  HeaderBytes bytes;
  EncodeHeader(header, bytes);
  return bytes;
}

TEST(TcpFrameTest, HeadersComeBack) {
  const auto decoded = DecodeHeader(Encoded(SomeHeader()), FrameReader::kTarget);
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(*decoded, SomeHeader());
}

TEST(TcpFrameTest, EveryDamagedBitIsSeen) {
  for (size_t bit = 0; bit < kFrameHeaderBytes * 8; ++bit) {
    HeaderBytes bytes = Encoded(SomeHeader());
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeHeader(bytes, FrameReader::kTarget)) << "bit " << bit;
  }
}

TEST(TcpFrameTest, SizesAreCheckedBeforeTheyAreUsed) {
  FrameHeader header = SomeHeader();
  header.control_bytes = kFrameControlBytesMax + 1;
  EXPECT_FALSE(DecodeHeader(Encoded(header), FrameReader::kTarget));
  header = SomeHeader();
  header.payload_bytes = kFramePayloadBytesMax + 1;
  EXPECT_FALSE(DecodeHeader(Encoded(header), FrameReader::kTarget));
  header = SomeHeader();
  header.payload_bytes = 0;  // a write without bytes
  EXPECT_FALSE(DecodeHeader(Encoded(header), FrameReader::kTarget));
  header.type = FrameType::kRead;
  EXPECT_TRUE(DecodeHeader(Encoded(header), FrameReader::kTarget));
  header.payload_bytes = 1;
  EXPECT_FALSE(DecodeHeader(Encoded(header), FrameReader::kTarget));
  header = FrameHeader();
  header.type = FrameType::kHello;
  header.control_bytes = 1000;  // a stranger has no say in how much is allocated
  EXPECT_FALSE(DecodeHeader(Encoded(header), FrameReader::kTarget));
}

TEST(TcpFrameTest, EachSideHearsOnlyWhatTheOtherMaySay) {
  for (int type = 0; type < 256; ++type) {
    FrameHeader header;
    header.type = static_cast<FrameType>(type);
    const bool payload = header.type == FrameType::kData || header.type == FrameType::kWrite;
    header.payload_bytes = payload ? 1 : 0;
    if (header.type == FrameType::kHello) header.control_bytes = 4 + kTicketBytes;
    const bool target = DecodeHeader(Encoded(header), FrameReader::kTarget).has_value();
    const bool initiator = DecodeHeader(Encoded(header), FrameReader::kInitiator).has_value();
    EXPECT_FALSE(target && initiator) << type;
    EXPECT_EQ(target || initiator, type >= 1 && type <= 8) << type;
  }
}

RequestBody SomeRequest() {
  RequestBody body;
  body.sections = {{"b-1", 11, 0, 2}, {"b-2", 12, 2, 1}};
  body.ranges = {{0, 10}, {UINT64_MAX, 20}, {4096, 30}};
  body.bytes = 60;
  body.priority = -10;
  return body;
}

TEST(TcpFrameTest, RequestsComeBack) {
  const auto body = DecodeRequest(BytesOf(EncodeRequest(SomeRequest())));
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->bytes, 60u);
  EXPECT_EQ(body->priority, -10);
  ASSERT_EQ(body->sections.size(), 2u);
  EXPECT_EQ(body->sections[1].buffer, "b-2");
  EXPECT_EQ(body->sections[1].generation, 12u);
  EXPECT_EQ(body->sections[1].first_range, 2u);
  ASSERT_EQ(body->ranges.size(), 3u);
  EXPECT_EQ(body->ranges[1].offset, UINT64_MAX);
  EXPECT_EQ(body->ranges[1].length, 20u);
}

// Whoever speaks version 1 takes it for an unknown flag.
TEST(TcpFrameTest, APriorityIsSaidToThoseWhoKnowIt) {
  const auto body = DecodeRequest(BytesOf(EncodeRequest(SomeRequest(), 1)));
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_EQ(body->priority, 0);
  RequestBody urgent = SomeRequest();
  urgent.priority = 11;
  EXPECT_FALSE(DecodeRequest(BytesOf(EncodeRequest(urgent))));
}

TEST(TcpFrameTest, RequestsThatAreCutOrTooLongAreRefused) {
  const std::string good = EncodeRequest(SomeRequest());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(DecodeRequest(BytesOf(good.substr(0, length)))) << length;
  }
  EXPECT_FALSE(DecodeRequest(BytesOf(good + "x")));
  RequestBody body = SomeRequest();
  body.ranges[0].length = 0;
  EXPECT_FALSE(DecodeRequest(BytesOf(EncodeRequest(body))));
  body.ranges[0].length = kFramePayloadBytesMax;  // together more than one frame carries
  EXPECT_FALSE(DecodeRequest(BytesOf(EncodeRequest(body))));
  body = SomeRequest();
  body.sections[0].buffer = std::string(kBufferIdBytesMax + 1, 'b');
  EXPECT_FALSE(DecodeRequest(BytesOf(EncodeRequest(body))));
  body.sections[0].buffer = "";
  EXPECT_FALSE(DecodeRequest(BytesOf(EncodeRequest(body))));
}

TEST(TcpFrameTest, TheLargestRequestFitsItsFrame) {
  RequestBody body;
  for (size_t i = 0; i < kFrameRangesMax; ++i) body.ranges.push_back({i, 1});
  for (size_t i = 0; i < kFrameSectionsMax; ++i) {
    const auto ranges = static_cast<uint32_t>(kFrameRangesMax / kFrameSectionsMax);
    body.sections.push_back(
        {std::string(kBufferIdBytesMax, 'b'), i, static_cast<uint32_t>(i) * ranges, ranges});
  }
  const std::string text = EncodeRequest(body);
  EXPECT_LE(text.size(), kFrameControlBytesMax);
  EXPECT_TRUE(DecodeRequest(BytesOf(text)));
}

TEST(TcpFrameTest, ProblemsKeepTheirCodeAndABoundedMessage) {
  const Error error(ErrorCode::kStaleGeneration, std::string(10'000, 'm'));
  const auto problem = DecodeProblem(BytesOf(EncodeProblem(error)));
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, ErrorCode::kStaleGeneration);
  EXPECT_EQ(problem->message.size(), 512u);
  EXPECT_FALSE(DecodeProblem({}));
}

}  // namespace
}  // namespace gantry::transport
