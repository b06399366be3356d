// Plain requests mean and are answered what they would be by way of the HTTP library: a header that
// nobody asks for takes the same request that way.
#include "lib/http/plain_request.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "lib/http/http_interpreter.h"
#include "lib/http/request_framing.h"

namespace gantry::http {
namespace {

const std::string kHead =
    "POST /v1/transfers?wait_ms=100 HTTP/1.1\r\nHost: gantry\r\nAccept: application/cbor\r\n"
    "Authorization: Bearer 00ff\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
    "Connection: keep-alive\r\n-ccept-Encoding: gzip\r\n\r\n";

Response Ok() {
  Response response;
  response.content_type = "application/json";
  response.body = "{}";
  return response;
}

// What the handler saw, and what came of it.
std::string Exchange(const std::string& head, const Response& answer) {
  std::string told;
  int asked = 0;
  HttpInterpreter interpreter([&](const Request& request) {
    ++asked;
    for (const std::string_view text :
         {request.method, request.path, request.name, request.body, request.content_type,
          request.accept, request.authorization, request.last_event_id}) {
      told.append(text).append("\n");
    }
    for (const auto& [key, value] : *request.query) told.append(key + "=" + value + "\n");
    told.append(std::to_string(request.uid.value_or(0))).append(request.may_wait ? "w" : "-");
    told.append(request.is_wanted() ? "y" : "n");
    return answer;
  });
  HttpInterpreter::Call call;
  call.head = head;
  call.body = "body";
  call.uid = 7;
  std::string out;
  const bool keep_open = interpreter.Run(call, &out);
  return told + "asked " + std::to_string(asked) + (keep_open ? " open\n" : " closed\n") + out;
}

std::string WithAnother(const std::string& head) {
  return head.substr(0, head.size() - 2) + "X-Nobody-Asks: 1\r\n\r\n";
}

TEST(PlainRequestTest, IsReadAsTheLibraryReadsIt) {
  for (const std::string& head :
       {kHead, std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string("DELETE /v1/transfers/t-1:a.b~c@d?workload=w-0&wait_ms=0 HTTP/1.1\r\n"
                    "User-Agent: curl/8 (x; y)\r\nHost: [::1]:80\r\n\r\n"),
        std::string(
            "POST /v1/transfers HTTP/1.1\r\nHost: localhost\r\nUser-Agent: requests/2.32\r\n"
            "-ccept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n"
            "Content-Length: 4\r\nContent-Type: application/json\r\n\r\n"),
        std::string("PUT /v1/holds/h HTTP/1.1\r\nContent-Length: 4\r\nAccept: */*\r\n\r\n")}) {
    EXPECT_TRUE(ReadPlainRequest(head)) << head;
    EXPECT_FALSE(ReadPlainRequest(WithAnother(head))) << head;
    EXPECT_EQ(Exchange(head, Ok()), Exchange(WithAnother(head), Ok())) << head;
  }
}

TEST(PlainRequestTest, WhatItWouldHaveToDecodeOrActOnIsTheLibrarys) {
  for (const char* line :
       {"HEAD /a HTTP/1.1", "OPTIONS /a HTTP/1.1", "get /a HTTP/1.1", "GET /a HTTP/1.0",
        "GET /a%20b HTTP/1.1", "GET /a?b=%20 HTTP/1.1", "GET /a?b=c+d HTTP/1.1",
        "GET /a?b HTTP/1.1", "GET /a?b= HTTP/1.1", "GET /a?=b HTTP/1.1", "GET /a? HTTP/1.1",
        "GET /a?b=c& HTTP/1.1", "GET /a?b=c&&d=e HTTP/1.1", "GET /a?b=c&b=c HTTP/1.1",
        "GET /a?b=c=d HTTP/1.1", "GET /a?b=c?d HTTP/1.1", "GET /a#b HTTP/1.1"}) {
    EXPECT_FALSE(ReadPlainRequest(std::string(line) + "\r\n\r\n")) << line;
  }
  for (const char* header :
       {"Connection: close", "Connection: Keep-Alive",
        "Connection: keep-alive\r\nConnection: keep-alive", "-ccept-Encoding: %20", "host: x",
        "Accept: %20", "Accept:  x", "Accept: x ", "Accept: ", "Accept:x", "Accept: a\r\nAccept: b",
        "Last-Event-ID: 3", "Range: bytes=0-1", "Accept-Encoding: gzip"}) {
    EXPECT_FALSE(ReadPlainRequest("GET / HTTP/1.1\r\n" + std::string(header) + "\r\n\r\n"))
        << header;
  }
  EXPECT_FALSE(ReadPlainRequest("GET / HTTP/1.1"));
}

TEST(PlainRequestTest, IsAnsweredAsTheLibraryAnswersWhateverTheAnswer) {
  std::vector<Response> answers(8, Ok());
  answers[1].status = 201;
  answers[2].status = 202;
  answers[3].status = 404;
  answers[4].status = 204;
  answers[4].body.clear();
  answers[4].content_type.clear();
  answers[5].headers.emplace_back("Location", "/v1/transfers/t");
  answers[6].body.clear();
  answers[7].content_type.clear();
  for (const Response& answer : answers) {
    const std::string answered = Exchange(kHead, answer);
    EXPECT_EQ(answered, Exchange(WithAnother(kHead), answer));
    EXPECT_NE(answered.find("asked 1 open\nHTTP/1.1 " + std::to_string(answer.status)),
              std::string::npos)
        << answered;
  }
}

// The library refuses a line of 8 KiB, and is not shown it.
TEST(PlainRequestTest, LongLinesMeanTheSame) {
  std::vector<Response> answers(3, Ok());
  answers[1].status = 404;
  answers[2].status = 204;
  answers[2].body.clear();
  for (const size_t length : {3'900u, 4'096u, 8'100u, 8'190u, 8'191u, 8'192u, 12'000u}) {
    const std::string head =
        "GET /v1/info HTTP/1.1\r\nUser-Agent: " + std::string(length - 14, 'a') + "\r\n\r\n";
    for (const Response& answer : answers) {
      EXPECT_EQ(Exchange(head, answer), Exchange(WithAnother(head), answer)) << length;
    }
  }
}

TEST(PlainRequestTest, LongLinesHaveTheirValue) {
  const std::string value = "application/json, " + std::string(9'000, 'b');
  for (const std::string name : {"Accept", "accept"}) {
    const std::string told =
        Exchange("GET /v1/info HTTP/1.1\r\n" + name + ":  " + value + " \r\nX: y\r\n\r\n", Ok());
    EXPECT_NE(told.find("\n" + value + "\n"), std::string::npos);
    EXPECT_NE(told.find("asked 1 open"), std::string::npos);
  }
}

TEST(PlainRequestTest, AConnectionThatIsToCloseIsToldSo) {
  HttpInterpreter interpreter([](const Request&) { return Ok(); });
  HttpInterpreter::Call call;
  call.head = kHead;
  call.close_after = true;
  std::string out;
  EXPECT_FALSE(interpreter.Run(call, &out));
  EXPECT_NE(out.find("Connection: close"), std::string::npos) << out;
}

// Heads that are framed well, with a few characters changed, taken out or repeated.
TEST(PlainRequestTest, MeansTheSameWhateverIsPlain) {
  std::mt19937 random(11);
  const std::string characters = "aA/?&=%+ :-.~@#\"\\1\t;,()_";
  int plain = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string head = kHead;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % (head.size() - 4);
      switch (random() % 3) {
        case 0:
          head[at] = characters[random() % characters.size()];
          break;
        case 1:
          head.erase(at, 1 + random() % 4);
          break;
        default:
          head.insert(at, head.substr(random() % head.size(), 1 + random() % 20));
      }
    }
    std::string framed = head;
    const Framing framing = FrameRequest({}, framed.data(), framed.size(), {});
    if (framing.state == Framing::State::kRefused || framing.head_bytes != framed.size()) continue;
    if (!ReadPlainRequest(framed)) continue;
    ++plain;
    ASSERT_EQ(Exchange(framed, Ok()), Exchange(WithAnother(framed), Ok())) << framed;
  }
  EXPECT_GT(plain, 5'000);
}

}  // namespace
}  // namespace gantry::http
