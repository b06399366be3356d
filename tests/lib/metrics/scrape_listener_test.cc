#include "lib/metrics/scrape_listener.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <thread>

#include "tests/lib/http/raw_http_client.h"

namespace gantry::metrics {
namespace {

using http::RawHttpClient;
using http::RawResponse;

class ScrapeListenerTest : public ::testing::Test {
 protected:
  ScrapeListenerTest() {
    prometheus::BuildCounter().Name("loads_total").Help("x").Register(*one_).Add({}).Increment(3);
    prometheus::BuildCounter().Name("falls_total").Help("y").Register(*two_).Add({}).Increment(7);
  }
  std::unique_ptr<ScrapeListener> Start(const std::string& address = "127.0.0.1:0") {
    auto listener = ScrapeListener::Start(address, {one_, two_});
    EXPECT_TRUE(listener) << listener.error().message;
    return listener ? std::move(*listener) : nullptr;
  }
  static void ExpectScraped(RawHttpClient client) {
    const RawResponse scraped = client.Get("/metrics");
    EXPECT_EQ(scraped.status, 200);
    EXPECT_EQ(scraped.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    EXPECT_NE(scraped.body.find("\nloads_total 3\n"), std::string::npos) << scraped.body;
    EXPECT_NE(scraped.body.find("\nfalls_total 7\n"), std::string::npos) << scraped.body;
  }

  const std::shared_ptr<prometheus::Registry> one_ = std::make_shared<prometheus::Registry>();
  const std::shared_ptr<prometheus::Registry> two_ = std::make_shared<prometheus::Registry>();
};

TEST_F(ScrapeListenerTest, GivesEverySourceOverEitherProtocol) {
  ExpectScraped(RawHttpClient(Start("0.0.0.0:0")->port()));
  const auto both = Start("[::]:0");
  ASSERT_TRUE(both);
  ExpectScraped(RawHttpClient::OverIpv6(both->port()));
  ExpectScraped(RawHttpClient(both->port()));
}

TEST_F(ScrapeListenerTest, HasNothingElse) {
  const auto listener = Start();
  RawHttpClient client(listener->port());
  for (const char* path : {"/", "/metrics/", "/v1/status", "/metrics%00"}) {
    EXPECT_GE(client.Get(path).status, 400) << path;
  }
  EXPECT_EQ(client.Get("/v1/status").code(), "not_found");
  EXPECT_EQ(client.Request("DELETE", "/metrics").status, 404);
  EXPECT_EQ(RawHttpClient(listener->port()).Post("/metrics", "x").status, 413);
  EXPECT_EQ(client.Get("/metrics?x=" + std::string(9'000, 'x')).status, 414);
}

TEST_F(ScrapeListenerTest, ClientsThatAreSlowOrManyHoldNobodyUp) {
  const auto listener = Start();
  std::vector<RawHttpClient> idle;
  for (int i = 0; i < 200; ++i) {
    idle.emplace_back(listener->port());
    if (i >= 50) idle.back().Send("GET /x HTTP/1.1\r\n\r\nG");  // in its second request
    if (i % 20 == 0) ExpectScraped(RawHttpClient(listener->port()));
  }
  ExpectScraped(RawHttpClient(listener->port()));
}

TEST_F(ScrapeListenerTest, ClientsThatAskWithoutEndHoldNobodyUp) {
  const auto listener = Start();
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 6; ++i) {
    busy.emplace_back([&over, client = RawHttpClient(listener->port())]() mutable {
      std::string many;
      for (int request = 0; request < 100; ++request) many += "GET /x HTTP/1.1\r\n\r\n";
      std::thread sender([&] {
        while (!over && client.Send(many)) {
        }
      });
      while (!over && !client.Receive().empty()) {
      }
      ::shutdown(client.socket(), SHUT_RDWR);
      sender.join();
    });
  }
  std::this_thread::sleep_for(milliseconds(200));
  for (int i = 0; i < 5; ++i) ExpectScraped(RawHttpClient(listener->port()));
  over = true;
  for (std::thread& thread : busy) thread.join();
}

TEST_F(ScrapeListenerTest, EndsAtOnceWhoeverIsConnected) {
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"}) {
    auto listener = Start(address);
    ASSERT_TRUE(listener);
    const auto connect = [&] {
      return address[0] == '[' ? RawHttpClient::OverIpv6(listener->port())
                               : RawHttpClient(listener->port());
    };
    RawHttpClient idle = connect();
    RawHttpClient slow = connect();
    ASSERT_TRUE(idle.connected() && slow.Send("GET /met")) << address;
    std::this_thread::sleep_for(milliseconds(50));
    const TimePoint begin = Clock::now();
    listener.reset();
    EXPECT_LT(Clock::now() - begin, milliseconds(1'500)) << address;
  }
}

TEST_F(ScrapeListenerTest, AnAddressThatIsTakenIsRefused) {
  const auto first = Start();
  const std::string taken = "127.0.0.1:" + std::to_string(first->port());
  auto second = ScrapeListener::Start(taken, {one_});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(second.error().message.find(taken), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace gantry::metrics
