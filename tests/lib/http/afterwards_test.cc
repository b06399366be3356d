// What follows an answer: done once the client has it, by the same thread, before another request.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/http/http_server.h"
#include "tests/lib/http/server_fixture.h"

namespace gantry::http {
namespace {

class AfterwardsTest : public ServerFixture {
 protected:
  AfterwardsTest() {
    Start([this](const Request& request) {
      const std::string path(request.path);
      Note("answers " + path);
      Response response = Plain(path);
      response.status = path == "/none" ? 204 : 200;
      if (path == "/none") response.body.clear();
      if (path == "/stream") {
        response.stream = [this](std::string* chunk) {
          *chunk = "more";
          std::this_thread::sleep_for(milliseconds(1));
          return held_.load();
        };
      }
      response.afterwards = [this, path] {
        while (held_) std::this_thread::sleep_for(milliseconds(1));
        Note("after " + path);
        if (path == "/throws") throw std::runtime_error("it went wrong");
      };
      return response;
    });
  }
  void Note(std::string what) {
    const MutexLock lock(mutex_);
    noted_.push_back(std::move(what));
  }
  std::vector<std::string> Noted(size_t count) {
    for (int i = 0; i < 5'000; ++i) {
      {
        const MutexLock lock(mutex_);
        if (noted_.size() >= count) return noted_;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    ADD_FAILURE() << "it never came to that";
    return {};
  }
  void TearDown() override {
    held_ = false;
    server_.reset();
  }

  std::atomic<bool> held_{false};
  Mutex mutex_;
  std::vector<std::string> noted_ GUARDED_BY(mutex_);
};

TEST_F(AfterwardsTest, TheClientHasItsAnswerAndTheNextRequestWaits) {
  held_ = true;
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/one").body, "/one");
  ASSERT_TRUE(client.Send("GET /two HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(client.Receive(milliseconds(50)).empty());
  RawHttpClient other = Connect();
  EXPECT_EQ(Noted(1), std::vector<std::string>{"answers /one"});
  held_ = false;
  EXPECT_NE(client.Receive().find("/two"), std::string::npos);
  EXPECT_EQ(Noted(4),
            (std::vector<std::string>{"answers /one", "after /one", "answers /two", "after /two"}));
}

// By way of the library as well: an escaped path, an answer without a body, one that is the last.
TEST_F(AfterwardsTest, HoweverTheRequestIsRead) {
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/%6fne").body, "/one");
  EXPECT_EQ(Noted(2).back(), "after /one");
  EXPECT_EQ(client.Get("/none").status, 204);
  EXPECT_EQ(Noted(4).back(), "after /none");
  ASSERT_TRUE(client.Send("GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_NE(client.Receive().find("/last"), std::string::npos);
  EXPECT_EQ(Noted(6).back(), "after /last");
}

// At the end of a stream; at once where there are too many.
TEST_F(AfterwardsTest, OfAStreamWhenItEnds) {
  constexpr size_t kStreams = 32;
  held_ = true;
  std::vector<RawHttpClient> streams;
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(Connect());
    ASSERT_TRUE(streams.back().Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_NE(streams.back().Receive().find("200"), std::string::npos);
  }
  EXPECT_EQ(Noted(kStreams), std::vector<std::string>(kStreams, "answers /stream"));
  RawHttpClient refused = Connect();
  ASSERT_TRUE(refused.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_NE(refused.Receive().find("HTTP/1.1 429"), std::string::npos);
  held_ = false;
  const auto noted = Noted(2 * (kStreams + 1));
  EXPECT_EQ(std::count(noted.begin(), noted.end(), "after /stream"), kStreams + 1);
}

TEST_F(AfterwardsTest, AlsoWhenTheClientHasGone) {
  RawHttpClient client = Connect();
  ASSERT_TRUE(client.Send("GET /one HTTP/1.1\r\nHost: x\r\n\r\n"));
  client.Close();
  EXPECT_EQ(Noted(2).back(), "after /one");
}

TEST_F(AfterwardsTest, WhatItThrowsEndsNothing) {
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/throws").body, "/throws");
  EXPECT_EQ(client.Get("/one").body, "/one");
  EXPECT_EQ(Noted(4).back(), "after /one");
}

}  // namespace
}  // namespace gantry::http
