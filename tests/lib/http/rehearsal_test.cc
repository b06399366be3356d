// While a thread looks for a connection's next request, its last one is answered again, for nobody.
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/http/http_server.h"
#include "tests/lib/http/server_fixture.h"

namespace gantry::http {
namespace {

constexpr milliseconds kSome{30};

class RehearsalTest : public ServerFixture {
 protected:
  RehearsalTest() {
    options_.connection.rehearsal_interval = milliseconds(1);
    options_.connection.input_spin = milliseconds(60'000);
  }
  void TearDown() override { server_.reset(); }  // it rehearses until then, with what follows
  void StartNoting() {
    Start([this](const Request& request) {
      if (request.rehearsed) Note(request);
      Response response = Plain(std::string(request.body) + (request.rehearsed ? "again" : ""));
      response.may_rehearse = request.path == "/rehearsed" && !(request.rehearsed && fails_);
      return response;
    });
  }
  void Note(const Request& request) {
    const MutexLock lock(mutex_);
    bodies_.emplace_back(request.body);
    uid_ = request.uid;
    queries_ += request.query->contains("q") ? 1 : 0;
  }
  size_t rehearsals() {
    const MutexLock lock(mutex_);
    return bodies_.size();
  }
  void AwaitRehearsals(size_t count) {
    for (int i = 0; i < 5'000 && rehearsals() < count; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    ASSERT_GE(rehearsals(), count);
  }

  std::atomic<bool> fails_ = false;
  Mutex mutex_;
  std::vector<std::string> bodies_;
  std::optional<uid_t> uid_;
  size_t queries_ = 0;
};

TEST_F(RehearsalTest, TheLastRequestIsAnsweredAgainForNobody) {
  StartNoting();
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Post("/rehearsed?q=1", "one").body, "one");
  AwaitRehearsals(3);
  EXPECT_EQ(client.Post("/rehearsed?q=1", "two").body, "two") << "it got another's answer";
  AwaitRehearsals(rehearsals() + 3);
  server_.reset();
  ASSERT_FALSE(bodies_.empty());
  EXPECT_EQ(bodies_.front(), "one");
  EXPECT_EQ(bodies_.back(), "two");
  EXPECT_EQ(uid_, ::geteuid());
  EXPECT_EQ(queries_, bodies_.size());
}

TEST_F(RehearsalTest, OverTcpNobodyIsTakenForALocalUser) {
  StartNoting();
  RawHttpClient client = ConnectTcp();
  EXPECT_EQ(client.Post("/rehearsed", "one").body, "one");
  AwaitRehearsals(2);
  server_.reset();
  EXPECT_FALSE(uid_);
}

TEST_F(RehearsalTest, OthersAreNotAndLeaveTheLastThatMay) {
  StartNoting();
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Post("/other", "x").body, "x");
  std::this_thread::sleep_for(kSome);
  EXPECT_EQ(rehearsals(), 0U);
  EXPECT_EQ(client.Post("/rehearsed", "one").body, "one");
  EXPECT_EQ(client.Post("/other", "x").body, "x");
  AwaitRehearsals(2);
  server_.reset();
  for (const std::string& body : bodies_) EXPECT_EQ(body, "one");
}

TEST_F(RehearsalTest, OneThatMayNotAnyMoreIsNotTriedAgain) {
  StartNoting();
  RawHttpClient client = Connect();
  fails_ = true;
  EXPECT_EQ(client.Post("/rehearsed", "one").body, "one");
  AwaitRehearsals(1);
  std::this_thread::sleep_for(kSome);
  EXPECT_EQ(rehearsals(), 1U);
  fails_ = false;
  EXPECT_EQ(client.Post("/rehearsed", "two").body, "two");
  AwaitRehearsals(3);
}

// One thread spins at a time, with what all share: until the server has seen that the first is
// closed, that may be the thread of the first, and the second's next request tries again.
TEST_F(RehearsalTest, EachConnectionHasItsOwn) {
  StartNoting();
  RawHttpClient first = Connect(), second = Connect();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(first.Post("/rehearsed", "one").body, "one");
    EXPECT_EQ(second.Post("/rehearsed", "two").body, "two");
    std::this_thread::sleep_for(milliseconds(2));
  }
  first.Close();
  const auto of_second = [this] {
    const MutexLock lock(mutex_);
    return std::ranges::count(bodies_, "two");
  };
  const auto enough = of_second() + 3;
  for (int i = 0; i < 500 && of_second() < enough; ++i) {
    EXPECT_EQ(second.Post("/rehearsed", "two").body, "two");
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(of_second(), enough);
  server_.reset();
  EXPECT_EQ(bodies_.back(), "two");
}

TEST_F(RehearsalTest, LargeOnesAreNot) {
  StartNoting();
  RawHttpClient client = Connect();
  const std::string body(5'000, 'x');
  EXPECT_EQ(client.Post("/rehearsed", body).body, body);
  std::this_thread::sleep_for(kSome);
  EXPECT_EQ(rehearsals(), 0U);
}

TEST_F(RehearsalTest, WithoutAnIntervalNoneIs) {
  options_.connection.rehearsal_interval = {};
  StartNoting();
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Post("/rehearsed", "one").body, "one");
  std::this_thread::sleep_for(kSome);
  EXPECT_EQ(rehearsals(), 0U);
}

}  // namespace
}  // namespace gantry::http
