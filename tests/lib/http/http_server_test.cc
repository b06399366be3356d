#include "lib/http/http_server.h"

#include <atomic>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "lib/http/error_response.h"
#include "tests/lib/http/server_fixture.h"

namespace gantry::http {
namespace {

class HttpServerTest : public ServerFixture {
 protected:
  void StartEcho() {
    Start([](const Request& request) {
      Response response = Plain(std::string(request.method) + " " + std::string(request.path) +
                                " " + std::to_string(request.body.size()));
      if (request.path == "/throw") throw std::runtime_error("a secret of the program");
      if (request.path == "/throw-int") throw 42;
      if (request.path == "/no-memory") throw std::bad_alloc();
      if (request.path == "/no-thread") {
        throw std::system_error(EAGAIN, std::generic_category());
      }
      if (request.path == "/uid") response.body = request.uid ? std::to_string(*request.uid) : "-";
      if (request.path == "/large") response.body.assign(4 << 20, 'x');
      if (request.path == "/body") response.body = request.body;
      return response;
    });
  }
};

TEST_F(HttpServerTest, AnswersOnBothSockets) {
  StartEcho();
  RawHttpClient unix_client = Connect();
  EXPECT_EQ(unix_client.Get("/a%20b?c=d").body, "GET /a b 0");
  EXPECT_EQ(unix_client.Get("/uid").body, std::to_string(::getuid()));
  EXPECT_EQ(unix_client.Post("/p", "12345").body, "POST /p 5");
  RawHttpClient tcp_client = ConnectTcp();
  EXPECT_EQ(tcp_client.Get("/x").body, "GET /x 0");
  EXPECT_EQ(tcp_client.Get("/uid").body, "-");
}

TEST_F(HttpServerTest, TheUnixSocketIsOfItsOwnerAndGroup) {
  StartEcho();
  const auto permissions = std::filesystem::status(options_.unix_path).permissions();
  EXPECT_EQ(static_cast<unsigned>(permissions), 0660u);
  server_->Stop(Clock::now() + milliseconds(1000));
  EXPECT_FALSE(std::filesystem::exists(options_.unix_path));
}

TEST_F(HttpServerTest, TcpIsForThisMachineOnly) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "localhost:0", "10.0.0.1:80", "127.0.0.1",
                              "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:1x", ":80", "127.1:80",
                              "[::1]", "::1:80", "[::ffff:127.0.0.1]:80"}) {
    options_.unix_path = folder_.File("refused.sock");
    options_.tcp_address = address;
    auto server = HttpServer::Start(options_, [](const Request&) { return Response(); });
    ASSERT_FALSE(server) << address;
    EXPECT_EQ(server.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(server.error().hint.find("tokens travel unencrypted"), std::string::npos);
  }
}

TEST_F(HttpServerTest, KeepsConnectionsAndTakesPipelinedRequests) {
  StartEcho();
  RawHttpClient client = Connect();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(client.Get("/again").status, 200) << i;
  std::string many;
  for (int i = 0; i < 50; ++i) {
    many += "POST /" + std::to_string(i) + " HTTP/1.1\r\nContent-Length: 2\r\n\r\nab";
  }
  client.Send(many);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(client.Read().body, "POST /" + std::to_string(i) + " 2");
  }
  EXPECT_EQ(client.Get("/", "Connection: close\r\n").status, 200);
  EXPECT_TRUE(client.WaitForEnd());
}

TEST_F(HttpServerTest, TheBodyComesThroughWhole) {
  StartEcho();
  std::string body(3'000'000, '\0');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7 + (i >> 10));
  RawHttpClient client = Connect();
  std::thread sender([&] {
    client.Send("POST /body HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3000000\r\n\r\n" +
                body);
  });
  EXPECT_EQ(client.Read().status, 100);
  const RawResponse response = client.Read();
  sender.join();
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.body == body);
}

TEST_F(HttpServerTest, HeadHasNoBodyAndRangesDoNotExist) {
  StartEcho();
  RawHttpClient client = Connect();
  client.Send("HEAD /h HTTP/1.1\r\n\r\nGET /g HTTP/1.1\r\nRange: bytes=0-2\r\n\r\n");
  const std::string bytes = client.Receive();
  EXPECT_EQ(bytes.find("GET /h"), std::string::npos);
  RawHttpClient other = Connect();
  const RawResponse whole = other.Get("/g", "Range: bytes=0-2\r\nAccept-Encoding: gzip\r\n");
  EXPECT_EQ(whole.status, 200);
  EXPECT_EQ(whole.body, "GET /g 0");
}

TEST_F(HttpServerTest, RefusesWithAProblemThenEnds) {
  StartEcho();
  struct Case {
    std::string bytes;
    int status;
    std::string code;
  };
  const std::vector<Case> cases = {
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", 411,
       "length_required"},
      {"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415,
       "unsupported_media_type"},
      {"POST / HTTP/1.1\r\nContent-Length: 8388609\r\n\r\n", 413, "body_too_large"},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nab", 400,
       "malformed_request"},
      {"GET /" + std::string(3000, 'a') + " HTTP/1.1\r\n\r\n", 414, "target_too_long"},
      {"GET / HTTP/1.1\r\nA: " + std::string(20'000, 'b') + "\r\n\r\n", 431, "head_too_large"},
      {"GET / HTTP/3\r\n\r\n", 505, "http_version"},
      {"nonsense\r\n\r\n", 400, "malformed_request"},
      {std::string("\0\0\0\0", 4) + "\r\n\r\n", 400, "malformed_request"},
  };
  for (const Case& each : cases) {
    RawHttpClient client = Connect();
    client.Send(each.bytes);
    const RawResponse response = client.Read();
    EXPECT_EQ(response.status, each.status) << each.bytes.substr(0, 60);
    EXPECT_EQ(response.code(), each.code);
    EXPECT_EQ(response.headers.at("content-type"), kProblemType);
    EXPECT_TRUE(client.WaitForEnd()) << each.code;
  }
}

TEST_F(HttpServerTest, ARefusalReachesAClientThatIsStillSending) {
  StartEcho();
  for (const bool tcp : {false, true}) {
    RawHttpClient client = tcp ? ConnectTcp() : Connect();
    client.Send("POST / HTTP/1.1\r\nContent-Length: 9000000\r\n\r\n");
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(client.Send(std::string(100'000, 'x')));
      std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_EQ(client.Read().code(), "body_too_large");
  }
}

TEST_F(HttpServerTest, AnEndlessHeaderLineEndsTheConnection) {
  StartEcho();
  RawHttpClient client = Connect();
  client.Send("GET / HTTP/1.1\r\nX: ");
  const std::string piece(64 * 1024, 'x');
  bool ended = false;
  for (int i = 0; i < 1000 && !ended; ++i) ended = !client.Send(piece);
  EXPECT_TRUE(ended);
}

TEST_F(HttpServerTest, WhatIsUsedUpIsNoFaultOfTheServer) {
  StartEcho();
  RawHttpClient client = Connect();
  for (const char* path : {"/no-memory", "/no-thread"}) {
    const RawResponse response = client.Get(path);
    EXPECT_EQ(response.status, 429) << path;
    EXPECT_EQ(response.code(), "resource_exhausted") << path;
  }
}

TEST_F(HttpServerTest, ExceptionsTellNothing) {
  StartEcho();
  RawHttpClient client = Connect();
  for (const char* path : {"/throw", "/throw-int"}) {
    const RawResponse response = client.Get(path);
    EXPECT_EQ(response.status, 500);
    EXPECT_EQ(response.code(), "internal");
    EXPECT_EQ(response.body.find("secret"), std::string::npos);
    EXPECT_FALSE(response.headers.contains("exception_what"));
  }
  EXPECT_EQ(client.Get("/fine").status, 200);
}

TEST_F(HttpServerTest, SlowAndIdleClientsDoNotHoldUpOthers) {
  options_.threads_min = 2;
  options_.threads_max = 2;
  StartEcho();
  std::vector<RawHttpClient> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(i % 2 == 0 ? Connect() : ConnectTcp());
    if (i % 3 == 1) slow.back().Send("POST /slow HTTP/1.1\r\nContent-Len");
    if (i % 3 == 2) slow.back().Send("POST /slow HTTP/1.1\r\nContent-Length: 1000\r\n\r\nabc");
  }
  RawHttpClient client = Connect();
  ASSERT_EQ(client.Get("/warm").status, 200);
  const TimePoint start = Clock::now();
  for (int i = 0; i < 200; ++i) {
    slow[static_cast<size_t>(i)].Send("a");
    ASSERT_EQ(client.Get("/fast").status, 200);
  }
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
  EXPECT_EQ(server_->connections(), 201u);
}

TEST_F(HttpServerTest, ASlowReaderHoldsNoThreadAndGetsEverything) {
  options_.threads_min = 2;
  options_.threads_max = 2;
  StartEcho();
  std::vector<RawHttpClient> slow;
  for (int i = 0; i < 20; ++i) {
    slow.push_back(Connect());
    slow.back().Send("GET /large HTTP/1.1\r\n\r\n");
  }
  RawHttpClient client = Connect();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(client.Get("/fast").status, 200);
  EXPECT_EQ(slow.front().Read().body, std::string(4 << 20, 'x'));
}

TEST_F(HttpServerTest, AnUnfinishedRequestTimesOut) {
  options_.connection.request_time_max = milliseconds(200);
  options_.connection.idle_time_max = milliseconds(400);
  options_.sweep_interval = milliseconds(20);
  StartEcho();
  RawHttpClient unfinished = Connect();
  unfinished.Send("POST /slow HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  RawHttpClient trickling = Connect();
  for (int i = 0; i < 10; ++i) {
    trickling.Send(i == 0 ? "GET /" : "x");
    std::this_thread::sleep_for(milliseconds(40));
  }
  EXPECT_EQ(unfinished.Read().code(), "request_timeout");
  EXPECT_TRUE(unfinished.WaitForEnd());
  EXPECT_EQ(trickling.Read().status, 408);
  RawHttpClient idle = Connect();
  EXPECT_EQ(idle.Get("/").status, 200);
  EXPECT_TRUE(idle.WaitForEnd(milliseconds(3000)));
}

TEST_F(HttpServerTest, AReaderThatNeverReadsIsCutOff) {
  options_.connection.response_time_max = milliseconds(200);
  options_.sweep_interval = milliseconds(20);
  StartEcho();
  RawHttpClient client = Connect();
  client.Send("GET /large HTTP/1.1\r\n\r\n");
  EXPECT_FALSE(client.Receive().empty());
  ASSERT_EQ(server_->connections(), 1u);
  for (int i = 0; i < 200 && server_->connections() > 0; ++i) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HttpServerTest, OneTooManyClosesTheOldestIdleOne) {
  options_.connections_max = 4;
  StartEcho();
  std::vector<RawHttpClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connect());
    ASSERT_EQ(clients.back().Get("/").status, 200);
    std::this_thread::sleep_for(milliseconds(5));
  }
  RawHttpClient fifth = Connect();
  EXPECT_EQ(fifth.Get("/").status, 200);
  EXPECT_TRUE(clients[0].WaitForEnd());
  EXPECT_EQ(clients[3].Get("/").status, 200);
}

TEST_F(HttpServerTest, ClientsThatOnlyConnectDoNotPushOutThoseThatSpeak) {
  options_.connections_max = 8;
  StartEcho();
  std::vector<RawHttpClient> speaking;
  for (int i = 0; i < 4; ++i) {
    speaking.push_back(Connect());
    ASSERT_EQ(speaking.back().Get("/").status, 200);
  }
  std::vector<RawHttpClient> crowd;
  for (int i = 0; i < 50; ++i) {
    crowd.push_back(Connect());
    if (i % 2 == 0) crowd.back().Send("GET / HT");
  }
  for (RawHttpClient& client : speaking) EXPECT_EQ(client.Get("/").status, 200);
  EXPECT_EQ(Connect().Get("/").status, 200);
  EXPECT_LE(server_->connections(), 8u);
}

TEST_F(HttpServerTest, WhereAllAreInUseANewOneIsToldTheLimit) {
  options_.connections_max = 2;
  options_.connections_hint = "raise the limit";
  std::atomic<bool> goes_on = false;
  Start([&](const Request&) {
    while (!goes_on) std::this_thread::sleep_for(milliseconds(1));
    return Plain("done");
  });
  std::vector<RawHttpClient> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(Connect());
    waiting.back().Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::this_thread::sleep_for(milliseconds(50));
  }
  std::vector<RawHttpClient> refused;
  for (int i = 0; i < 40; ++i) refused.push_back(Connect());  // they ask for nothing
  RawHttpClient last = Connect();
  const RawResponse response = last.Get("/");
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.code(), "resource_exhausted");
  EXPECT_NE(response.body.find("at most 2 HTTP connections"), std::string::npos) << response.body;
  EXPECT_EQ(response.Text("hint"), "raise the limit");
  EXPECT_LE(server_->connections(), 2u + 8);
  goes_on = true;
  for (RawHttpClient& client : waiting) EXPECT_EQ(client.Read().body, "done");
}

TEST_F(HttpServerTest, LinesMayBeAsLongAsTheHead) {
  StartEcho();
  const std::string line = "GET / HTTP/1.1\r\nHost: x\r\nCookie: ";
  for (const size_t length : {8'000u, 8'190u, 8'192u, 9'000u}) {
    RawHttpClient client = Connect();
    client.Send(line + std::string(length, 'c') + "\r\n\r\n");
    EXPECT_EQ(client.Read().status, 200) << length;
  }
  const size_t most = kHeadBytesMax - line.size() - 4;
  for (const size_t more : {0u, 1u}) {
    RawHttpClient client = Connect();
    client.Send(line + std::string(most + more, 'c') + "\r\n\r\n");
    EXPECT_EQ(client.Read().status, more == 0 ? 200 : 431);
  }
}

TEST_F(HttpServerTest, LargeBodiesHaveABudgetTogether) {
  options_.connection.large_bytes_max = 1 << 20;
  StartEcho();
  const std::string head = "POST /body HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n";
  RawHttpClient client = Connect();
  client.Send(head + std::string(3'000'000, 'x'));
  EXPECT_EQ(client.Read().code(), "resource_exhausted");
  RawHttpClient small = Connect();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(small.Post("/body", std::string(500'000, 'x')).status, 200);
  }
}

}  // namespace
}  // namespace gantry::http
