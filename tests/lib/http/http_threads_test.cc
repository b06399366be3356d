#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/http/http_server.h"
#include "tests/lib/http/server_fixture.h"

namespace gantry::http {
namespace {

// Handlers that wait until they are let go, and streams that go on until they are not wanted.
class HttpThreadsTest : public ServerFixture {
 protected:
  void StartWaiting() {
    Start([this](const Request& request) {
      if (request.path == "/wait") return Wait(request);
      if (request.path == "/stream") return Stream();
      return Plain("quick");
    });
  }
  void TearDown() override {
    LetGo();
    server_.reset();
  }
  void LetGo() {
    const MutexLock lock(mutex_);
    gone_ = true;
    changed_.NotifyAll();
  }
  void AwaitWaiters(int count) {
    for (int i = 0; i < 500 && waiting_ < count; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    ASSERT_EQ(waiting_, count);
  }

  // Threads of this process.
  static size_t Tasks() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
  }

  static bool HttpThreadsSleep() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream stat(task.path() / "stat");
      std::string line;
      std::getline(stat, line);
      if (line.find("(gantry-http) R") != std::string::npos) return false;
    }
    return true;
  }

  Response Wait(const Request& request) {
    if (!request.may_wait) return Plain("refused");
    ++waiting_;
    MutexLock lock(mutex_);
    while (!gone_) changed_.Wait(lock);
    return Plain("waited");
  }
  Response Stream() {
    Response response;
    response.content_type = "text/event-stream";
    ++streams_;
    response.stream = [end = std::shared_ptr<int>(nullptr, [this](int*) { --streams_; }),
                       count = 0](std::string* chunk) mutable {
      if (count++ < 3) *chunk = "data: " + std::to_string(count) + "\n\n";
      std::this_thread::sleep_for(milliseconds(5));
      return true;
    };
    return response;
  }

  Mutex mutex_;
  Condition changed_;
  bool gone_ = false;
  std::atomic<int> waiting_ = 0;
  std::atomic<int> streams_ = 0;
};

TEST_F(HttpThreadsTest, ThreadsGrowWithRequestsThatWaitUpToALimit) {
  options_.threads_min = 2;
  options_.threads_max = 6;
  StartWaiting();
  std::vector<RawHttpClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /wait HTTP/1.1\r\n\r\n");
    AwaitWaiters(i + 1);
  }
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/wait").body, "refused");
  EXPECT_EQ(client.Get("/quick").body, "quick");
  EXPECT_EQ(server_->threads(), 6u);
  LetGo();
  for (RawHttpClient& each : clients) EXPECT_EQ(each.Read().body, "waited");
  // Who has answered is there for others a moment later.
  std::string body = "refused";
  for (int i = 0; i < 500 && body == "refused"; ++i) {
    if (i > 0) std::this_thread::sleep_for(milliseconds(10));
    body = client.Get("/wait").body;
  }
  EXPECT_EQ(body, "waited");
}

TEST_F(HttpThreadsTest, IdleThreadsEndDownToTheLeast) {
  std::thread([] {}).join();  // with the first one ThreadSanitizer starts one of its own
  const size_t tasks_before = Tasks();
  options_.threads_min = 2;
  options_.thread_idle_max = milliseconds(200);
  StartWaiting();
  const size_t tasks_least = Tasks();
  EXPECT_EQ(tasks_least, tasks_before + 3) << "with the one that sweeps";
  std::vector<RawHttpClient> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /wait HTTP/1.1\r\n\r\n");
    AwaitWaiters(i + 1);
  }
  EXPECT_EQ(server_->threads(), 21u);
  LetGo();
  for (RawHttpClient& each : clients) EXPECT_EQ(each.Read().body, "waited");
  for (int i = 0; i < 500 && Tasks() > tasks_least; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(Tasks(), tasks_least);
  EXPECT_EQ(server_->threads(), 2u);
  EXPECT_EQ(Connect().Get("/quick").body, "quick");
}

TEST_F(HttpThreadsTest, AThreadStaysForOthersHoweverLongItIsIdle) {
  options_.threads_min = 2;
  options_.thread_idle_max = milliseconds(50);
  StartWaiting();
  std::vector<RawHttpClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /wait HTTP/1.1\r\n\r\n");
    AwaitWaiters(i + 1);
  }
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(server_->threads(), 6u);
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/quick").body, "quick");
}

TEST_F(HttpThreadsTest, AStreamEndsWhenTheClientHangsUp) {
  StartWaiting();
  RawHttpClient client = Connect();
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  std::string bytes;
  while (bytes.find("data: 3") == std::string::npos) {
    const std::string more = client.Receive();
    ASSERT_FALSE(more.empty());
    bytes += more;
  }
  EXPECT_NE(bytes.find("Transfer-Encoding: chunked"), std::string::npos);
  EXPECT_EQ(streams_, 1);
  client.Close();
  for (int i = 0; i < 300 && server_->connections() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(streams_, 0);
}

TEST_F(HttpThreadsTest, StreamsHaveALimitAndEndWithTheServer) {
  StartWaiting();
  std::vector<RawHttpClient> clients;
  for (int i = 0; i < 32; ++i) {
    clients.push_back(Connect());
    clients.back().Send("GET /stream HTTP/1.1\r\n\r\n");
    ASSERT_NE(clients.back().Receive().find("200 OK"), std::string::npos);
  }
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/stream").code(), "resource_exhausted");
  clients.pop_back();
  for (int i = 0; i < 300 && server_->connections() > 32; ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  client.Send("GET /stream HTTP/1.1\r\n\r\n");
  EXPECT_NE(client.Receive().find("200 OK"), std::string::npos);
  const TimePoint start = Clock::now();
  server_->Stop(start + milliseconds(5000));
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
}

TEST_F(HttpThreadsTest, StopLetsRunningRequestsFinish) {
  StartWaiting();
  RawHttpClient idle = Connect();
  EXPECT_EQ(idle.Get("/quick").status, 200);
  RawHttpClient waiting = Connect();
  waiting.Send("GET /wait HTTP/1.1\r\n\r\n");
  AwaitWaiters(1);
  std::thread stopper([this] { server_->Stop(Clock::now() + milliseconds(5000)); });
  std::this_thread::sleep_for(milliseconds(50));
  LetGo();
  EXPECT_EQ(waiting.Read().body, "waited");
  stopper.join();
  EXPECT_TRUE(idle.WaitForEnd());
  EXPECT_FALSE(Connect().connected());
}

TEST_F(HttpThreadsTest, ManyClientsAtOnce) {
  StartWaiting();
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round) {
        RawHttpClient client = round % 2 == 0 ? Connect() : ConnectTcp();
        for (int request = 0; request < 20; ++request) {
          if (client.Get("/quick").status == 200) ++answered;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 8 * 10 * 20);
}

// A connection that its client keeps is looked at for a moment, then it sleeps.
TEST_F(HttpThreadsTest, AnIdleConnectionKeepsNoThreadAwake) {
  StartWaiting();
  RawHttpClient client = Connect();
  EXPECT_EQ(client.Get("/quick").body, "quick");
  const TimePoint limit = Clock::now() + milliseconds(10'000);
  int in_a_row = 0;
  while (in_a_row < 20 && Clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(3));
    in_a_row = HttpThreadsSleep() ? in_a_row + 1 : 0;
  }
  EXPECT_EQ(in_a_row, 20);
}

}  // namespace
}  // namespace gantry::http
