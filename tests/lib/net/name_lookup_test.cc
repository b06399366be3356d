#include "lib/net/name_lookup.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

namespace gantry::net {
namespace {

TimePoint In(int milliseconds_from_now) {
  return Clock::now() + milliseconds(milliseconds_from_now);
}

TEST(NameLookup, ALiteralAddressIsNotLookedUp) {
  for (const char* host : {"10.0.0.7", "fd00::7"}) {
    const auto found = LookUp({host, 7450}, Clock::now());  // no time for a name server
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ(found->front().Host(), host);
    EXPECT_EQ(found->front().Port(), 7450);
    EXPECT_EQ(found->front().Text(), (HostPort{host, 7450}.Text()));
  }
}

TEST(NameLookup, ANameHasTheAddressesOfTheSystem) {
  const auto found = LookUp({"localhost", 7450}, In(10'000));
  ASSERT_TRUE(found) << found.error().message;
  for (const SocketAddress& address : *found) EXPECT_TRUE(IsLoopback(address.Host()));
}

TEST(NameLookup, ANameWithoutAddressFailsWithItsName) {
  const auto found = LookUp({"nowhere.invalid", 7450}, In(10'000));
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("'nowhere.invalid'"), std::string::npos)
      << found.error().message;
}

TEST(NameLookup, WhoStopsWaitingLeavesTheRequestBehind) {
  for (int i = 0; i < 50; ++i) {
    const auto late = LookUp({"nowhere.invalid", 7450}, Clock::now());
    EXPECT_FALSE(late);
    const auto cancelled = LookUp({"nowhere.invalid", 7450}, In(10'000), [] { return true; });
    EXPECT_FALSE(cancelled);
  }
}

}  // namespace
}  // namespace gantry::net
