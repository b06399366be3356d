#include "lib/http/unix_http.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "lib/base/fd_passing.h"
#include "tests/client/fake_sidecar.h"

namespace gantry::http {
namespace {

using namespace std::chrono_literals;
using client::FakeRequest;
using client::FakeSidecar;

HttpRequest Get(std::string_view target, bool repeatable = true) {
  return {.method = "GET", .target = target, .repeatable = repeatable, .timeout = 5000ms};
}

TEST(UnixHttp, KeepsOneConnectionForRequestsInARow) {
  FakeSidecar server;
  UnixHttp http(server.api_socket());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(http.Send(Get("/a"))->status, 200);
  EXPECT_EQ(server.connections_made(), 1U);
}

TEST(UnixHttp, SendsMethodTargetTokenAndBody) {
  FakeSidecar server;
  UnixHttp http(server.api_socket());
  const std::string body(300'000, 'b');
  ASSERT_TRUE(http.Send(
      {.method = "POST", .target = "/v1/x?y=1", .body = body, .bearer = "tok", .timeout = 5000ms}));
  const FakeRequest request = server.requests().at(0);
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/v1/x?y=1");
  EXPECT_EQ(request.body, body);
  EXPECT_NE(request.head.find("Authorization: Bearer tok\r\n"), std::string::npos);
  EXPECT_NE(request.head.find("Content-Type: application/json\r\n"), std::string::npos);
}

TEST(UnixHttp, ConnectsAgainWhenAnIdleConnectionWasClosed) {
  FakeSidecar server;
  UnixHttp http(server.api_socket());
  ASSERT_TRUE(http.Send(Get("/a")));
  server.CloseConnections();
  EXPECT_EQ(http.Send(Get("/a", false))->status, 200);
  EXPECT_EQ(server.connections_made(), 2U);
}

TEST(UnixHttp, RepeatsARequestThatAKeptConnectionDidNotAnswer) {
  std::atomic<int> asked{0};
  FakeSidecar server;
  server.On("/drop", [&](const FakeRequest&) {
    return ++asked == 1 ? std::string() : FakeSidecar::Json(200, "{}");
  });
  UnixHttp http(server.api_socket());
  ASSERT_TRUE(http.Send(Get("/a")));
  EXPECT_TRUE(http.Send(Get("/drop")));
  EXPECT_EQ(asked, 2);
}

TEST(UnixHttp, DoesNotRepeatWhatMayNotBeDoneTwice) {
  std::atomic<int> asked{0};
  FakeSidecar server;
  server.On("/drop", [&](const FakeRequest&) {
    ++asked;
    return std::string();
  });
  UnixHttp http(server.api_socket());
  ASSERT_TRUE(http.Send(Get("/a")));
  const auto reply = http.Send(Get("/drop", false));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(asked, 1);
}

TEST(UnixHttp, RepeatsOnlyOnce) {
  std::atomic<int> asked{0};
  FakeSidecar server;
  server.On("/drop", [&](const FakeRequest&) {
    ++asked;
    return std::string();
  });
  UnixHttp http(server.api_socket());
  ASSERT_TRUE(http.Send(Get("/a")));
  EXPECT_EQ(http.Send(Get("/drop")).error().code, ErrorCode::kPeerLost);
  EXPECT_EQ(asked, 2);
}

TEST(UnixHttp, NobodyListens) {
  UnixHttp http("/nonexistent/api.sock");
  const auto reply = http.Send(Get("/a"));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kPeerUnavailable);
  EXPECT_NE(reply.error().hint, "");
}

TEST(UnixHttp, AServerThatDoesNotAnswerIsLate) {
  std::atomic<bool> stop{false};
  FakeSidecar server;  // ends before what its handlers read
  server.On("/hang", [&](const FakeRequest&) {
    while (!stop) std::this_thread::sleep_for(5ms);
    return std::string();
  });
  UnixHttp http(server.api_socket());
  const TimePoint start = Clock::now();
  const auto reply =
      http.Send({.method = "GET", .target = "/hang", .repeatable = true, .timeout = 100ms});
  stop = true;
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(SecondsBetween(start, Clock::now()), 2);
}

// One byte at a time must not stretch the time without end.
TEST(UnixHttp, AServerThatDripsIsLate) {
  const std::string path = "/tmp/gantry-drip-" + std::to_string(::getpid()) + ".sock";
  const UniqueFd listener = ListenUnix(path, SOCK_STREAM, 0600, 1).value();
  std::thread server([&] {
    const UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    const std::string head = "HTTP/1.1 200 OK\r\nX: ";
    ::send(socket.get(), head.data(), head.size(), MSG_NOSIGNAL);
    while (::send(socket.get(), "x", 1, MSG_NOSIGNAL) == 1) std::this_thread::sleep_for(10ms);
  });
  UnixHttp http(path);
  const auto reply = http.Send({.method = "GET", .target = "/", .timeout = 200ms});
  server.join();
  ::unlink(path.c_str());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadlineExceeded);
}

TEST(UnixHttp, CloseEndsRequestsInFlight) {
  std::atomic<bool> stop{false};
  std::atomic<bool> asked{false};
  FakeSidecar server;
  server.On("/hang", [&](const FakeRequest&) {
    asked = true;
    while (!stop) std::this_thread::sleep_for(5ms);
    return std::string();
  });
  UnixHttp http(server.api_socket());
  std::thread closer([&] {
    while (!asked) std::this_thread::sleep_for(1ms);
    http.Close();
  });
  const auto reply = http.Send(Get("/hang"));
  closer.join();
  stop = true;
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(http.Send(Get("/a")).error().code, ErrorCode::kCancelled);
}

TEST(UnixHttp, ManyThreads) {
  FakeSidecar server;
  UnixHttp http(server.api_socket());
  std::atomic<int> succeeded{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) succeeded += http.Send(Get("/a")).has_value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(succeeded, 400);
}

}  // namespace
}  // namespace gantry::http
