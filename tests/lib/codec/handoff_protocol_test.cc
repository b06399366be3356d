#include "lib/codec/handoff_protocol.h"

#include <gtest/gtest.h>

#include "lib/base/random_id.h"

namespace gantry::wire {
namespace {

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

void ExpectRefused(const std::string& text, ErrorCode code = ErrorCode::kMalformedBody) {
  const auto request = DecodeHandoffRequest(text);
  ASSERT_FALSE(request) << text.substr(0, 200);
  EXPECT_EQ(request.error().code, code) << text.substr(0, 200) << request.error().message;
}

TEST(HandoffProtocolTest, RequestsRoundTrip) {
  HandoffRequest attach;
  attach.type = HandoffType::kAttach;
  attach.lease_token = RandomToken();
  EXPECT_EQ(DecodeHandoffRequest(Encode(attach))->lease_token, attach.lease_token);
  EXPECT_EQ(DecodeHandoffRequest(Encode(attach))->type, HandoffType::kAttach);

  HandoffRequest fds;
  fds.type = HandoffType::kFds;
  fds.fd_count = 253;
  EXPECT_EQ(DecodeHandoffRequest(Encode(fds))->fd_count, 253u);

  HandoffRequest release;
  release.type = HandoffType::kRelease;
  for (size_t i = 0; i < kHandoffTokensMax; ++i) release.tokens.push_back(RandomToken());
  EXPECT_EQ(DecodeHandoffRequest(Encode(release))->tokens, release.tokens);

  EXPECT_EQ(DecodeHandoffRequest(Encode(HandoffRequest{}))->type, HandoffType::kPing);
}

TEST(HandoffProtocolTest, RepliesRoundTrip) {
  const HandoffReply attached{"engine-0", 0xfedcba9876543210, {}};
  const auto there = DecodeHandoffReply(EncodeReply(attached));
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_EQ(there->workload, "engine-0");
  EXPECT_EQ(there->generation, 0xfedcba9876543210);
  const HandoffReply kept{"", 0, {RandomToken(), RandomToken()}};
  EXPECT_EQ(DecodeHandoffReply(EncodeReply(kept))->tokens, kept.tokens);
  EXPECT_TRUE(DecodeHandoffReply(EncodeReply(HandoffReply{})));

  const auto failed = DecodeHandoffReply(
      EncodeReply(Fail(ErrorCode::kConflict, "two \"words\"\n\xff", "a hint", "/field")));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kConflict);
  EXPECT_EQ(failed.error().message, "two \"words\"\n\xef\xbf\xbd");
  EXPECT_EQ(failed.error().hint, "a hint");
}

TEST(HandoffProtocolTest, OnlyListedFieldsOfTheirTypeOnce) {
  const std::string token = R"("lease_token":")" + std::string(kToken) + "\"";
  EXPECT_TRUE(DecodeHandoffRequest(R"({"type":"attach","version":1,)" + token + "}"));
  ExpectRefused(R"({"type":"attach","version":1,"more":1,)" + token + "}");
  ExpectRefused(R"({"type":"attach","version":1,"version":1,)" + token + "}");
  ExpectRefused(R"({"type":"ping","type":"ping"})");
  ExpectRefused(R"({"type":"ping","\u0074ype":"ping"})");
  ExpectRefused(R"({"type":"ping","count":1})");
  ExpectRefused(R"({"type":"attach",)" + token + "}");
  ExpectRefused(R"({"type":"attach","version":"1",)" + token + "}");
  ExpectRefused(R"({"type":"attach","version":1})");
  ExpectRefused(R"({"type":"stop"})");
  ExpectRefused(R"({"type":1})");
  ExpectRefused(R"({"type":["ping"]})");
  ExpectRefused(R"({"type":null})");
  ExpectRefused(R"({"type":true})");
  ExpectRefused(R"({"type":{"type":"ping"}})");
  ExpectRefused("{}");
  ExpectRefused(R"([{"type":"ping"}])");
  ExpectRefused(R"("ping")");
  ExpectRefused("17");
  ExpectRefused("");
  ExpectRefused(R"({"type":"ping"} x)");
  ExpectRefused(R"({"type":"ping"}{"type":"ping"})");
  ExpectRefused("{\"type\":\"ping\xff\"}");
  ExpectRefused(std::string("{\"type\":\"ping\"}\0", 16));
  ExpectRefused(std::string("{\"type\":\"ping\"}\0, and more", 26));
}

TEST(HandoffProtocolTest, NumbersAreUnsignedAndInRange) {
  EXPECT_EQ(DecodeHandoffRequest(R"({"type":"fds","count":1})")->fd_count, 1u);
  for (const char* count : {"0", "-1", "254", "1.0", "1e1", "18446744073709551615",
                            "18446744073709551616", "-18446744073709551615", "1e999", "[1]"}) {
    ExpectRefused(R"({"type":"fds","count":)" + std::string(count) + "}");
  }
}

TEST(HandoffProtocolTest, TokensAreHexDigits) {
  for (const std::string& token :
       {std::string(), std::string(31, 'a'), std::string(33, 'a'), std::string(32, 'A'),
        std::string(32, 'g'), std::string(31, 'a') + "\\u0000"}) {
    ExpectRefused(R"({"type":"release","tokens":[")" + token + "\"]}");
    ExpectRefused(R"({"type":"attach","version":1,"lease_token":")" + token + "\"}");
  }
  ExpectRefused(R"({"type":"release","tokens":[]})");
  ExpectRefused(R"({"type":"release","tokens":[1]})");
  ExpectRefused(R"({"type":"release","tokens":[[]]})");
  ExpectRefused(R"({"type":"release","tokens":["a",{}]})");
}

TEST(HandoffProtocolTest, AnotherVersionIsAMismatchWhateverElseItSays) {
  const auto later = DecodeHandoffRequest(R"({"type":"attach","version":2,"new":["x"]})");
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, ErrorCode::kVersionMismatch);
  const std::string rest = R"(,"lease_token":")" + std::string(32, 'a') + R"("})";
  ExpectRefused(R"({"type":"attach","version":0)" + rest, ErrorCode::kVersionMismatch);
}

TEST(HandoffProtocolTest, DeepAndLongMessagesAreRefusedAtOnce) {
  ExpectRefused(std::string(kHandoffMessageBytesMax, '['));
  std::string objects;
  while (objects.size() < 60'000) objects += R"({"a":)";
  ExpectRefused(objects);
  ExpectRefused(std::string(kHandoffMessageBytesMax + 1, ' '), ErrorCode::kBodyTooLarge);
  std::string release = R"({"type":"release","tokens":[)";
  const std::string token = '"' + RandomToken() + '"';
  for (size_t i = 0; i < kHandoffTokensMax; ++i) release += token + ",";
  ExpectRefused(release + token + "]}");
}

TEST(HandoffProtocolTest, RepliesAreReadAsStrictly) {
  for (const char* text :
       {R"({"type":"ok","more":1})", R"({"type":"ok","workload":"w"})",
        R"({"type":"ok","generation":"0000000000000001"})",
        R"({"type":"ok","workload":"a/b","generation":"0000000000000001"})",
        R"({"type":"ok","workload":"w","generation":"1"})",
        R"({"type":"ok","workload":"w","generation":1})", R"({"type":"ok","tokens":"x"})",
        R"({"type":"error"})", R"({"type":"error","code":"conflict","message":"m"})", "null",
        R"({"type":"ping"})"}) {
    const auto reply = DecodeHandoffReply(text);
    ASSERT_FALSE(reply) << text;
    EXPECT_NE(reply.error().code, ErrorCode::kConflict) << text;
  }
  const auto unknown =
      DecodeHandoffReply(R"({"type":"error","code":"of_tomorrow","message":"m","hint":""})");
  EXPECT_EQ(unknown.error().code, ErrorCode::kInternal);
  EXPECT_EQ(unknown.error().message, "m");
}

}  // namespace
}  // namespace gantry::wire
