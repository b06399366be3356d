#include "lib/http/tcp_listener.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/lib/http/raw_http_client.h"

namespace gantry::http {
namespace {

constexpr int kBacklog = 4;

TEST(TcpListener, TakesEveryAddressForTheNetworkAndAnyFreePort) {
  for (const char* address : {"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"}) {
    int port = 0;
    auto listener = ListenTcp(address, Reach::kNetwork, kBacklog, &port);
    ASSERT_TRUE(listener) << address << ": " << listener.error().message;
    EXPECT_GT(port, 0);
    const bool v6 = address[0] == '[';
    EXPECT_EQ(RawHttpClient::OverIpv6(port).connected(), v6) << address;
    EXPECT_EQ(RawHttpClient(port).connected(), std::string(address) != "[::1]:0") << address;
  }
}

TEST(TcpListener, TakesLoopbackOnlyWhereThatIsAskedFor) {
  int port = 0;
  EXPECT_TRUE(ListenTcp("127.0.0.1:0", Reach::kLoopback, kBacklog, &port));
  EXPECT_TRUE(ListenTcp("127.1.2.3:0", Reach::kLoopback, kBacklog, &port));
  EXPECT_TRUE(ListenTcp("[::1]:0", Reach::kLoopback, kBacklog, &port));
  for (const char* address : {"0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0", "128.0.0.1:0"}) {
    auto refused = ListenTcp(address, Reach::kLoopback, kBacklog, &port);
    ASSERT_FALSE(refused) << address;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(TcpListener, WhatIsNoAddressIsRefusedWithWhatOneLooksLike) {
  for (const char* address : {"", ":80", "9464", "+9464", "localhost:0", "127.1:80", "::1:80",
                              "[::1]", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:1x"}) {
    int port = 0;
    auto refused = ListenTcp(address, Reach::kNetwork, kBacklog, &port);
    ASSERT_FALSE(refused) << address;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().hint.find("[::]:9464"), std::string::npos) << refused.error().hint;
  }
}

TEST(TcpListener, AnAddressThatIsTakenIsRefused) {
  int port = 0;
  const auto first = ListenTcp("127.0.0.1:0", Reach::kNetwork, kBacklog, &port);
  ASSERT_TRUE(first);
  int other = 0;
  const auto second =
      ListenTcp("127.0.0.1:" + std::to_string(port), Reach::kNetwork, kBacklog, &other);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace gantry::http
