// A handler's view of requests, and the answers, beyond what tests of the server look at.
#include "lib/http/http_interpreter.h"

#include <gtest/gtest.h>

#include <string>

namespace gantry::http {
namespace {

Response Ok() {
  Response response;
  response.content_type = "application/json";
  response.body = "{}";
  return response;
}

// The request as the handler saw it, whether the connection stays open, and the answer.
std::string Exchange(const std::string& head, bool close_after = false) {
  std::string told;
  HttpInterpreter interpreter([&](const Request& request) {
    for (const std::string_view text :
         {request.method, request.path, request.body, request.content_type, request.accept,
          request.authorization, request.last_event_id}) {
      told.append(text).append("\n");
    }
    for (const auto& [key, value] : *request.query) told.append(key + "=" + value + "\n");
    return Ok();
  });
  HttpInterpreter::Call call;
  call.head = head;
  call.body = "body";
  call.close_after = close_after;
  std::string out;
  const bool keep_open = interpreter.Run(call, &out);
  return told + (keep_open ? "open\n" : "closed\n") + out;
}

TEST(HttpInterpreterTest, TheHandlerSeesHeadersQueryAndBody) {
  const std::string told = Exchange(
      "POST /v1/a%20b?wait_ms=100&c=%2Fd HTTP/1.1\r\nHost: gantry\r\nAccept: application/cbor\r\n"
      "Authorization: Bearer 00ff\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
      "Connection: keep-alive\r\nLast-Event-ID: 3\r\n\r\n");
  EXPECT_TRUE(
      told.starts_with("POST\n/v1/a b\nbody\napplication/json\napplication/cbor\n"
                       "Bearer 00ff\n3\nc=/d\nwait_ms=100\nopen\nHTTP/1.1 200 OK\r\n"))
      << told;
  EXPECT_TRUE(told.ends_with("\r\n\r\n{}")) << told;
}

// The library refuses a line of 8 KiB, and is not shown it.
TEST(HttpInterpreterTest, LongLinesHaveTheirValue) {
  const std::string value = "application/json, " + std::string(9'000, 'b');
  for (const std::string name : {"Accept", "accept"}) {
    const std::string told =
        Exchange("GET /v1/info HTTP/1.1\r\n" + name + ":  " + value + " \r\nX: y\r\n\r\n");
    EXPECT_NE(told.find("\n" + value + "\n"), std::string::npos);
    EXPECT_NE(told.find("\nopen\nHTTP/1.1 200"), std::string::npos);
  }
}

TEST(HttpInterpreterTest, ALineOfAnyLengthIsAnswered) {
  for (const size_t length : {3'900u, 4'096u, 8'100u, 8'190u, 8'191u, 8'192u, 12'000u}) {
    const std::string told = Exchange(
        "GET /v1/info HTTP/1.1\r\nUser-Agent: " + std::string(length - 14, 'a') + "\r\n\r\n");
    EXPECT_NE(told.find("\nopen\nHTTP/1.1 200"), std::string::npos) << length;
  }
}

TEST(HttpInterpreterTest, AConnectionThatIsToCloseIsToldSo) {
  const std::string told = Exchange("GET / HTTP/1.1\r\nHost: x\r\n\r\n", /*close_after=*/true);
  EXPECT_NE(told.find("\nclosed\n"), std::string::npos);
  EXPECT_NE(told.find("Connection: close"), std::string::npos) << told;
}

}  // namespace
}  // namespace gantry::http
