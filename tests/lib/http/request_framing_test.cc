#include "lib/http/request_framing.h"

#include <gtest/gtest.h>

#include <string>

namespace gantry::http {
namespace {

using State = Framing::State;

Framing Frame(std::string bytes) { return FrameRequest({}, bytes.data(), bytes.size(), {}); }

void ExpectRefused(const std::string& bytes, Refusal refusal) {
  const Framing framing = Frame(bytes);
  EXPECT_EQ(framing.state, State::kRefused) << bytes.substr(0, 80);
  EXPECT_EQ(framing.refusal, refusal) << bytes.substr(0, 80);
}

TEST(RequestFramingTest, FindsTheEndByteByByte) {
  std::string request = "POST /a HTTP/1.1\r\nHost: x\r\ncontent-length:  3 \r\n\r\nabc";
  for (size_t step = 1; step < 5; ++step) {
    Framing framing;
    for (size_t size = step; size < request.size(); size += step) {
      framing = FrameRequest(framing, request.data(), size, {});
      EXPECT_EQ(framing.state, State::kIncomplete) << size;
    }
    framing = FrameRequest(framing, request.data(), request.size(), {});
    EXPECT_EQ(framing.state, State::kComplete);
    EXPECT_EQ(framing.body_bytes, 3u);
    EXPECT_EQ(framing.head_bytes + framing.body_bytes, request.size());
  }
}

TEST(RequestFramingTest, LeavesTheNextRequestAlone) {
  const Framing framing = Frame("GET / HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n");
  EXPECT_EQ(framing.state, State::kComplete);
  EXPECT_EQ(framing.head_bytes, 18u);
  EXPECT_EQ(framing.body_bytes, 0u);
}

TEST(RequestFramingTest, RefusesWhatHidesTheLength) {
  ExpectRefused("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", Refusal::kLengthRequired);
  ExpectRefused("POST / HTTP/1.1\r\nContent-Length: 1\r\ntransfer-encoding: identity\r\n\r\n",
                Refusal::kLengthRequired);
  ExpectRefused("POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n",
                Refusal::kEncoding);
  for (const char* length : {"", "-1", "+1", "1 1", "0x10", "1,1", "1.0"}) {
    ExpectRefused("POST / HTTP/1.1\r\nContent-Length: " + std::string(length) + "\r\n\r\n",
                  Refusal::kMalformed);
  }
  ExpectRefused("POST / HTTP/1.1\r\nContent-Length: 1\r\nCONTENT-LENGTH: 1\r\n\r\n",
                Refusal::kMalformed);
}

TEST(RequestFramingTest, LengthsDoNotWrapAround) {
  for (const char* length : {"8388609", "18446744073709551616", "18446744073709551617",
                             "99999999999999999999999999999999"}) {
    ExpectRefused("POST / HTTP/1.1\r\nContent-Length: " + std::string(length) + "\r\n\r\n",
                  Refusal::kBodyTooLarge);
  }
  EXPECT_EQ(Frame("POST / HTTP/1.1\r\nContent-Length: 8388608\r\n\r\n").state, State::kIncomplete);
}

TEST(RequestFramingTest, RefusesEndlessLinesWithoutTheirEnd) {
  ExpectRefused("GET /" + std::string(4096, 'a'), Refusal::kTargetTooLong);
  ExpectRefused("GET /" + std::string(2048, 'a') + " HTTP/1.1\r\n\r\n", Refusal::kTargetTooLong);
  ExpectRefused("GET / HTTP/1.1\r\nX: " + std::string(17'000, 'a'), Refusal::kHeadTooLarge);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 101; ++i) many += "a: b\r\n";
  ExpectRefused(many + "\r\n", Refusal::kHeadTooLarge);
}

TEST(RequestFramingTest, RefusesWhatIsNoRequest) {
  for (const char* head : {
           "\r\n\r\n",
           "GET\r\n\r\n",
           "GET /\r\n\r\n",
           "GET  / HTTP/1.1\r\n\r\n",
           "GET / x HTTP/1.1\r\n\r\n",
           "GET * HTTP/1.1\r\n\r\n",
           "GET http://x/ HTTP/1.1\r\n\r\n",
           "G\x01T / HTTP/1.1\r\n\r\n",
           "GET /\x7f HTTP/1.1\r\n\r\n",
           "GET / FTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\nno colon\r\n\r\n",
           "GET / HTTP/1.1\r\n: empty\r\n\r\n",
           "GET / HTTP/1.1\r\nname : x\r\n\r\n",
           "GET / HTTP/1.1\r\na: b\r\n folded\r\n\r\n",
           "GET / HTTP/1.1\r\na: b\nc: d\r\n\r\n",
           "GET / HTTP/1.1\r\na: \x01\r\n\r\n",
           "ABCDEFGHIJKLMNOPQ / HTTP/1.1\r\n\r\n",
       }) {
    ExpectRefused(head, Refusal::kMalformed);
  }
  ExpectRefused(std::string("GET / HTTP/1.1\r\na: \0b\r\n\r\n", 25), Refusal::kMalformed);
  ExpectRefused("GET / HTTP/2.0\r\n\r\n", Refusal::kVersion);
}

// They are looked for eight bytes at a time.
TEST(RequestFramingTest, RefusesControlCharactersAnywhereInALine) {
  for (size_t length = 1; length < 20; ++length) {
    for (size_t at = 0; at < length; ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string value(length, 'x');
        value[at] = static_cast<char>(c);
        const bool is_refused = (c < 0x20 && c != '\t') || c == 0x7f;
        const std::string head = "GET / HTTP/1.1\r\na:" + value + "\r\n\r\n";
        EXPECT_EQ(Frame(head).state, is_refused ? State::kRefused : State::kComplete)
            << c << " at " << at << " of " << length;
      }
    }
  }
}

TEST(RequestFramingTest, HidesHeadersFromTheLibrary) {
  std::string bytes =
      "GET / HTTP/1.1\r\nRange: bytes=0-1\r\nAccept-Encoding: gzip\r\nexpect: 100-Continue\r\n\r\n";
  const Framing framing = FrameRequest({}, bytes.data(), bytes.size(), {});
  EXPECT_EQ(framing.state, State::kComplete);
  EXPECT_TRUE(framing.expects_continue);
  EXPECT_NE(bytes.find("\r\n-ange: "), std::string::npos);
  EXPECT_NE(bytes.find("\r\n-ccept-Encoding: "), std::string::npos);
  EXPECT_NE(bytes.find("\r\n-xpect: "), std::string::npos);
}

}  // namespace
}  // namespace gantry::http
