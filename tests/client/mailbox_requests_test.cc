// Requests of the client's HTTP to a real server, through the mailbox beside a connection.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lib/base/fd_passing.h"
#include "tests/client/mailbox_fixture.h"

namespace gantry::client {
namespace {

using namespace std::chrono_literals;

TEST_F(MailboxRequestsTest, AConnectionThatIsUsedGetsOneAndSmallRequestsGoThroughIt) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (size_t i = 0; i < 3'000; ++i) {
    Echo(http, std::string(i % 700, static_cast<char>('a' + i % 26)) + std::to_string(i));
  }
  EXPECT_EQ(asked_, 1U);
  EXPECT_GT(by_mailbox_, 2'500U);
}

TEST_F(MailboxRequestsTest, WhatIsTooLargeGoesOverTheSocketEachWay) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (const size_t size : {7'000, 7'900, 8'000, 8'001, 20'000, 300'000}) {
    for (const char* more : {"/echo", "/echo?n=7900", "/echo?n=9000", "/echo?n=100000"}) {
      const auto reply = Post(http, std::string(size, 'x'), more);
      ASSERT_TRUE(reply) << reply.error().message;
      const std::string target(more);
      const size_t n = target.find('=') == std::string::npos ? 0 : std::stoul(target.substr(8));
      EXPECT_EQ(reply->body, std::string(size, 'x') + std::string(n, 'n'));
      Echo(http, "small");
    }
  }
  EXPECT_EQ(asked_, 1U);
  EXPECT_GT(by_mailbox_, 24U);
  EXPECT_GT(by_socket_, 16U);
}

// The server sleeps in between: what was to go through memory is sent.
TEST_F(MailboxRequestsTest, NothingIsLostWhereTheServerStopsLooking) {
  options_.connection.input_spin = 300us;
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (int i = 0; i < 2'000; ++i) {
    const TimePoint due = Clock::now() + microseconds(i % 600);
    while (Clock::now() < due) {
    }
    if (i % 50 == 0) std::this_thread::sleep_for(5ms);
    Echo(http, std::to_string(i));
  }
  EXPECT_GT(by_mailbox_, 0U);
  EXPECT_GT(by_socket_, 10U);
}

TEST_F(MailboxRequestsTest, WhoNeverLooksIsSentEverything) {
  options_.connection.input_spin = 0us;
  Start();
  UnixHttp http(options_.unix_path);
  for (int i = 0; i < 200; ++i) {
    Echo(http, std::to_string(i));
    std::this_thread::sleep_for(200us);
  }
  EXPECT_EQ(asked_, 1U);
  EXPECT_LT(by_mailbox_, 20U) << "one look at the end of each answer may find some";
}

TEST_F(MailboxRequestsTest, WhoWaitsLongIsWokenByTheSocket) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  const auto before = by_mailbox_.load();
  for (const auto delay : {0ms, 1ms, 20ms, 20ms, 20ms, 3ms, 60ms, 0ms, 0ms}) {
    delay_ = delay;
    const auto reply = Post(http, "late", "/slow");
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->body, "late");
  }
  EXPECT_EQ(by_mailbox_, before + 9);
}

TEST_F(MailboxRequestsTest, WhoIsRefusedDoesNotAskAgain) {
  gives_ = false;
  Start();
  UnixHttp http(options_.unix_path);
  for (int connection = 0; connection < 3; ++connection) {
    for (int i = 0; i < 50; ++i) Echo(http, "x");
    server_.reset();
    Start();
  }
  EXPECT_EQ(asked_, 1U);
  EXPECT_EQ(by_mailbox_, 0U);
}

TEST_F(MailboxRequestsTest, LateIsLateAndTheNextIsAnsweredAsEver) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  delay_ = 300ms;
  const auto reply = Post(http, "late", "/slow", 50ms);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kDeadlineExceeded);
  for (int i = 0; i < 100; ++i) Echo(http, std::to_string(i));
}

TEST_F(MailboxRequestsTest, CloseEndsARequestThatWentThroughMemory) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  delay_ = 500ms;
  const auto before = by_mailbox_.load();
  std::thread closer([&] {
    while (by_mailbox_ == before) std::this_thread::sleep_for(1ms);
    http.Close();
  });
  const TimePoint start = Clock::now();
  const auto reply = Post(http, "x", "/slow", 30s);
  closer.join();
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, ErrorCode::kCancelled);
  EXPECT_LT(SecondsBetween(start, Clock::now()), 0.4);
}

TEST_F(MailboxRequestsTest, ManyThreadsOfManyClients) {
  options_.connection.input_spin = 200us;
  Start();
  UnixHttp shared(options_.unix_path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      UnixHttp own(options_.unix_path);
      for (int i = 0; i < 1'000; ++i) {
        Echo(i % 2 == 0 ? own : shared, std::to_string(t) + "-" + std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(by_mailbox_, 0U);
}

// A request that nobody read may be sent again even where it must not be done twice.
TEST_F(MailboxRequestsTest, AServerThatWasStoppedIsFoundAgain) {
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (int i = 0; i < 5; ++i) {
    server_.reset();
    Start();
    for (unsigned k = 0; k < 3 * UnixHttp::kMailboxAfter; ++k) Echo(http, std::to_string(i));
  }
  EXPECT_EQ(asked_, 6U);
}

// Killed while it looks: nothing tells that it does not any more.
TEST_F(MailboxRequestsTest, AServerThatWasKilledIsFoundAgain) {
  const auto serve = [this] {
    const pid_t child = ::fork();
    if (child == 0) {
      Start();
      for (;;) ::pause();
    }
    return child;
  };
  const auto await = [this] {
    for (int i = 0; i < 2'000 && !ConnectUnix(options_.unix_path, SOCK_STREAM); ++i) {
      std::this_thread::sleep_for(1ms);
    }
  };
  UnixHttp http(options_.unix_path);
  pid_t server = serve();
  await();
  for (int i = 0; i < 5; ++i) {
    for (unsigned k = 0; k < 2 * UnixHttp::kMailboxAfter; ++k) Echo(http, std::to_string(i));
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
    server = serve();
    await();
  }
  Echo(http, "after all");
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
}

// Offers each answer and takes it back, again and again, and sends it if nobody was quicker.
TEST(MailboxAnswers, OneThatWasTakenBackComesOverTheSocket) {
  const gantry::testing::TestFolder folder;
  const std::string path = folder.File("api.sock");
  const UniqueFd listener = ListenUnix(path, SOCK_STREAM, 0600, 1).value();
  std::thread server([&] {
    const UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    const UniqueFd memory = Mailbox::CreateMemory().value();
    Mailbox end = Mailbox::Map(memory.get(), Mailbox::End::kServer).value();
    std::array<char, Mailbox::kMessageBytesMax> bytes;
    for (;;) {
      const ssize_t received = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      const size_t taken = end.Take(bytes).value_or(0);
      if (received == 0) return;
      if (received < 0 && taken == 0) continue;
      if (std::string_view(bytes.data(), 20).starts_with("POST /v1/mailbox")) {
        end.Look();
        SendWithFd(socket.get(),
                   "HTTP/1.1 201 X\r\nContent-Type: application/json\r\n"
                   "Content-Length: 13\r\n\r\n{\"version\":1}",
                   memory.get());
        continue;
      }
      constexpr std::string_view kAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
      bool is_theirs = false;
      for (int i = 0; i < 200 && !is_theirs; ++i) is_theirs = end.Offer(kAnswer) && !end.TakeBack();
      if (!is_theirs) ::send(socket.get(), kAnswer.data(), kAnswer.size(), MSG_NOSIGNAL);
    }
  });
  {
    UnixHttp http(path);
    for (int i = 0; i < 3'000; ++i) {
      const auto reply = http.Send({.method = "POST", .target = "/x", .timeout = 10s});
      ASSERT_TRUE(reply) << i << " " << reply.error().message;
      ASSERT_EQ(reply->body, "hi");
    }
  }
  server.join();
}

TEST_F(MailboxRequestsTest, ARehearsalOfTheClientGoesThroughMemoryToo) {
  Start();
  UnixHttp http(options_.unix_path);
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
  const std::string large =
      "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + std::string(9'000, 'l');
  const std::string body(300, 'b'), more(9'000, 'm');
  const auto rehearse = [&](std::string_view sent, std::string_view received, size_t bytes) {
    const auto reply =
        http.Rehearse({.method = "POST", .target = "/x", .body = sent, .timeout = 5s}, received);
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->body.size(), bytes);
  };
  rehearse(body, answer, 2);
  OpenMailbox(http);
  const auto requests = by_mailbox_ + by_socket_;
  for (int i = 0; i < 50; ++i) {
    rehearse(body, answer, 2);
    rehearse(more, answer, 2);
    rehearse(body, large, 9'000);
    rehearse(more, large, 9'000);
  }
  EXPECT_EQ(by_mailbox_ + by_socket_, requests) << "the server heard of it";
  EXPECT_FALSE(http.Rehearse({.method = "POST", .target = "/x", .body = body, .timeout = 5s},
                             "no answer at all\r\n\r\n"));
  rehearse(body, answer, 2);
  Echo(http, "after");
}

TEST_F(MailboxRequestsTest, TheServerRehearsesWhatComesThroughMemoryThatWay) {
  options_.connection.rehearsal_interval = 1ms;
  Start();
  UnixHttp http(options_.unix_path);
  OpenMailbox(http);
  for (int i = 0; i < 10; ++i) {
    const std::string body = std::to_string(i);
    const auto reply = Post(http, body, "/rehearsed");
    ASSERT_TRUE(reply) << reply.error().message;
    EXPECT_EQ(reply->body, body);
    const auto wanted = rehearsed_ + 3;
    for (int k = 0; k < 5'000 && rehearsed_ < wanted; ++k) std::this_thread::sleep_for(1ms);
    EXPECT_GE(rehearsed_, wanted);
    const auto large = Post(http, body, "/rehearsed?n=9000");
    ASSERT_TRUE(large) << large.error().message;
    EXPECT_EQ(large->body.size(), 9'001U);
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(rehearsed_otherwise_, 0U);
}

}  // namespace
}  // namespace gantry::client
