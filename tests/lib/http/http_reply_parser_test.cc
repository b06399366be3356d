#include "lib/http/http_reply_parser.h"

#include <gtest/gtest.h>

namespace gantry::http {
namespace {

struct Outcome {
  bool complete = false;
  bool failed = false;
  bool reusable = false;
  HttpReply reply;
};

// The reply in parts of `step` bytes, as a socket may deliver it.
Outcome Parse(std::string_view text, size_t step) {
  HttpReplyParser parser;
  Outcome outcome;
  for (size_t at = 0; at < text.size() && !outcome.complete; at += step) {
    const auto complete = parser.Take(text.substr(at, step));
    if (!complete) {
      outcome.failed = true;
      return outcome;
    }
    outcome.complete = *complete;
  }
  if (!outcome.complete) outcome.complete = parser.TakeEnd().value();
  outcome.reusable = outcome.complete && parser.reusable();
  outcome.reply = parser.TakeReply();
  return outcome;
}

class EveryStep : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Bytes, EveryStep, ::testing::Values(1, 2, 3, 7, 4096));

TEST_P(EveryStep, ContentLength) {
  const Outcome outcome = Parse(
      "HTTP/1.1 201 Created\r\ncontent-TYPE: Application/JSON; charset=utf-8\r\n"
      "Content-Length: 4\r\n\r\nabcd",
      GetParam());
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.reusable);
  EXPECT_EQ(outcome.reply.status, 201);
  EXPECT_EQ(outcome.reply.body, "abcd");
}

TEST_P(EveryStep, Chunked) {
  const Outcome outcome = Parse(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\nA;extension=1\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
      GetParam());
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.reusable);
  EXPECT_EQ(outcome.reply.body, "abc0123456789");
}

TEST_P(EveryStep, UntilTheEndOfTheConnection) {
  const Outcome outcome = Parse("HTTP/1.0 200 OK\r\n\r\nall of it", GetParam());
  EXPECT_TRUE(outcome.complete);
  EXPECT_FALSE(outcome.reusable);
  EXPECT_EQ(outcome.reply.body, "all of it");
}

TEST_P(EveryStep, NoContentAndInterimReplies) {
  const Outcome outcome =
      Parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            GetParam());
  EXPECT_TRUE(outcome.complete);
  EXPECT_FALSE(outcome.reusable);
  EXPECT_EQ(outcome.reply.status, 204);
}

TEST_P(EveryStep, ShortRepliesAreIncomplete) {
  for (const char* text :
       {"HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab"}) {
    EXPECT_FALSE(Parse(text, GetParam()).complete) << text;
  }
}

TEST_P(EveryStep, RefusesWhatIsNotHttp) {
  for (const char* text :
       {"SSH-2.0-OpenSSH_9.2\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "HTTP/1.1 200 OK\r\nno token: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \x01\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n"}) {
    EXPECT_TRUE(Parse(text, GetParam()).failed) << text;
  }
}

TEST(HttpReplyParser, EndlessHeadsAndTrailersAreRefused) {
  EXPECT_TRUE(Parse("HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), 4096).failed);
  EXPECT_TRUE(Parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
                        std::string(100'000, 'x'),
                    4096)
                  .failed);
}

TEST(HttpReplyParser, BytesPastTheReplySpoilTheConnection) {
  EXPECT_FALSE(Parse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc", 4096).reusable);
}

}  // namespace
}  // namespace gantry::http
