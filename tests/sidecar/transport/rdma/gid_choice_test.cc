#include "sidecar/transport/rdma/verbs/gid_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/sidecar/transport/rdma/gid_entries.h"

namespace gantry::transport {
namespace {

using ::testing::HasSubstr;

GidEntry Elsewhere(GidEntry entry) {
  entry.is_here = false;
  return entry;
}

int Chosen(const std::vector<GidEntry>& gids, const GidWishes& wishes = {}) {
  const auto choice = ChooseGid(gids, wishes);
  EXPECT_TRUE(choice) << choice.error().message;
  return choice ? choice->index : -1;
}
int ChosenFor(const std::string& peer, const std::vector<GidEntry>& gids) {
  return Chosen(gids, {-1, GidOf(peer)});
}

TEST(GidChoice, PrefersIpv4ThenGlobalIpv6ThenLinkLocal) {
  // As a driver lists them: each address once a version.
  std::vector<GidEntry> gids = {V1(0, "fe80::1"),     V2(1, "fe80::1"),  V1(2, "2001:db8::1"),
                                V2(3, "2001:db8::1"), V1(4, "10.0.1.3"), V2(5, "10.0.1.3")};
  EXPECT_EQ(Chosen(gids), 5);
  EXPECT_EQ(ChooseGid(gids, {})->reason, "RoCE v2 over IPv4, 10.0.1.3 of eth0");
  gids.pop_back();
  EXPECT_EQ(Chosen(gids), 3);
  gids.erase(gids.begin() + 3);
  EXPECT_EQ(Chosen(gids), 1);
  EXPECT_EQ(ChooseGid(gids, {})->reason, "RoCE v2 over IPv6, link-local, fe80::1 of eth0");
  EXPECT_EQ(Chosen({V2(0, "169.254.3.4"), V2(1, "2001:db8::1")}), 1) << "IPv4, but link-local";
}

TEST(GidChoice, ReadsWhereALinkLocalAddressEnds) {
  EXPECT_EQ(Chosen({V2(0, "febf::1"), V2(1, "fec0::1")}), 1);
  EXPECT_EQ(Chosen({V2(0, "fe7f::1"), V2(1, "fd00::1")}), 0) << "both are global, the first one";
}

TEST(GidChoice, NeverTakesTheFirstVersionOfRoce) {
  const auto choice = ChooseGid({V1(0, "fe80::1"), V1(1, "10.0.1.3")}, {});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(choice.error().message, HasSubstr("1: RoCE v1 over IPv4, 10.0.1.3 of eth0"));
}

TEST(GidChoice, SkipsWhatBelongsToAnotherNamespace) {
  EXPECT_EQ(Chosen({Elsewhere(V2(3, "10.0.1.3")), V2(7, "2001:db8::1")}), 7);
  const auto none = ChooseGid({Elsewhere(V2(3, "10.0.1.3"))}, {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("10.0.1.3 of eth0 (not in this network namespace)"));
  EXPECT_THAT(none.error().hint, HasSubstr("network namespace"));
}

TEST(GidChoice, EmptyEntriesAreNone) {
  EXPECT_EQ(Chosen({V2(0, "::"), V2(1, "fe80::1")}), 1);
  const auto none = ChooseGid({V2(0, "::")}, {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("table of GIDs is empty"));
  EXPECT_FALSE(ChooseGid({}, {}));
}

TEST(GidChoice, OfInfiniBandItIsTheFirst) {
  const std::vector<GidEntry> gids = {
      Elsewhere(GidAt(0, GidType::kInfiniBand, "fe80::506b:4b03:1")),
      GidAt(1, GidType::kInfiniBand, "fec0::1")};
  EXPECT_EQ(Chosen(gids), 0) << "no interface has its addresses";
  EXPECT_EQ(ChosenFor("fec0::2", gids), 0);
  EXPECT_EQ(Chosen(gids, {1, {}}), 1);
  EXPECT_FALSE(ChooseGid({GidAt(1, GidType::kInfiniBand, "fec0::1")}, {}));
}

TEST(GidChoice, AnOperatorsIndexOverrules) {
  const std::vector<GidEntry> gids = {V1(0, "10.0.1.3"), V2(1, "10.0.1.3"), V2(2, "fe80::1"),
                                      Elsewhere(V2(3, "10.9.1.3")), V2(4, "::")};
  EXPECT_EQ(Chosen(gids, {2, {}}), 2);
  EXPECT_EQ(Chosen(gids, {2, GidOf("10.0.1.4")}), 2);
  EXPECT_EQ(Chosen(gids, {3, {}}), 3) << "who configures it knows the namespaces";
  EXPECT_THAT(ChooseGid(gids, {2, {}})->reason, HasSubstr("configured"));
  for (const int index : {0, 4, 9}) {
    const auto choice = ChooseGid(gids, {index, {}});
    ASSERT_FALSE(choice) << index;
    EXPECT_EQ(choice.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(choice.error().message, HasSubstr("configured index " + std::to_string(index)));
    EXPECT_THAT(choice.error().message, HasSubstr("1: RoCE v2 over IPv4"));
  }
}

TEST(GidChoice, PrefersThePeersSubnet) {
  const std::vector<GidEntry> gids = {V2(1, "10.0.0.3", 24), V2(2, "10.0.1.3", 24),
                                      V2(3, "2001:db8:1::3", 64), V2(4, "2001:db8:2::3", 64),
                                      V2(5, "fe80::3", 64)};
  EXPECT_EQ(ChosenFor("10.0.0.9", gids), 1);
  EXPECT_EQ(ChosenFor("10.0.1.9", gids), 2);
  EXPECT_EQ(ChosenFor("10.7.7.7", gids), 1) << "routed";
  EXPECT_EQ(ChosenFor("2001:db8:2::9", gids), 4);
  EXPECT_EQ(ChosenFor("2001:db8:7::9", gids), 3);
  EXPECT_EQ(ChosenFor("fe80::9", gids), 5);
  EXPECT_THAT(ChooseGid(gids, {-1, GidOf("10.0.1.9")})->reason,
              HasSubstr("10.0.1.3 of eth0, in the peer's subnet"));
  EXPECT_THAT(ChooseGid(gids, {-1, GidOf("10.7.7.7")})->reason,
              Not(HasSubstr("in the peer's subnet")));
}

TEST(GidChoice, WhereNoSubnetIsThePeersItIsTheUsualOne) {
  const std::vector<GidEntry> gids = {V2(1, "10.0.0.3", 24), V2(2, "10.0.1.3", 24),
                                      V2(3, "fe80::3", 64)};
  EXPECT_EQ(Chosen(gids, {-1, GidOf("10.7.7.7"), GidOf("10.0.1.3")}), 2);
  EXPECT_EQ(Chosen(gids, {-1, GidOf("10.0.0.7"), GidOf("10.0.1.3")}), 1);
  EXPECT_EQ(Chosen(gids, {-1, GidOf("10.7.7.7"), GidOf("10.9.9.9")}), 1) << "it is gone";
  EXPECT_EQ(Chosen(gids, {-1, GidOf("fe80::9"), GidOf("10.0.1.3")}), 3) << "of the other version";
}

TEST(GidChoice, ASubnetEndsAtItsBit) {
  // 10.0.1.0/25 and 10.0.1.128/25; 2001:db8::/33 and its other half.
  const std::vector<GidEntry> gids = {V2(1, "10.0.1.3", 25), V2(2, "10.0.1.200", 25),
                                      V2(3, "2001:db8::3", 33), V2(4, "2001:db8:8000::3", 33)};
  EXPECT_EQ(ChosenFor("10.0.1.127", gids), 1);
  EXPECT_EQ(ChosenFor("10.0.1.128", gids), 2);
  EXPECT_EQ(ChosenFor("2001:db8:7fff::9", gids), 3);
  EXPECT_EQ(ChosenFor("2001:db8:8000::9", gids), 4);
  // Of one address alone, of none that is known, and what is none.
  EXPECT_EQ(ChosenFor("10.0.1.4", {V2(1, "10.0.1.3", 32), V2(2, "10.0.1.4", 32)}), 2);
  EXPECT_EQ(ChosenFor("10.0.1.4", {V2(1, "10.0.1.3", -1), V2(2, "10.0.1.5", 30)}), 2);
  EXPECT_EQ(ChosenFor("10.0.1.4", {V2(1, "10.0.1.3", 99), V2(2, "10.0.1.5", 30)}), 2);
  EXPECT_EQ(ChosenFor("10.0.1.4", {V2(1, "10.2.0.3", 0), V2(2, "10.0.1.5", 30)}), 2);
}

TEST(GidChoice, APeerOfTheOtherVersionOfIpIsNotReached) {
  EXPECT_EQ(ChosenFor("2001:db8::9", {V2(1, "10.0.1.3"), V2(2, "2001:db8::3")}), 2);
  const auto choice = ChooseGid({V2(1, "10.0.1.3")}, {-1, GidOf("2001:db8::9")});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code, ErrorCode::kPathUnavailable);
  EXPECT_THAT(choice.error().message, HasSubstr("2001:db8::9"));
  EXPECT_THAT(choice.error().message, HasSubstr("10.0.1.3"));
}

// Whatever is in the table: what is chosen is in it and can be used, and the order does not matter.
TEST(GidChoice, HoldsForRandomTables) {
  std::mt19937 random(7);
  const std::vector<std::string> addresses = {
      "::",      "fe80::1",     "fe80::2",     "10.0.1.3",    "10.0.2.3",
      "fd00::1", "2001:db8::1", "169.254.1.1", "192.168.3.4", "fe80::abc"};
  int chosen = 0;
  for (int i = 0; i < 5000; ++i) {
    std::vector<GidEntry> gids;
    const auto entries = static_cast<int>(random() % 6);
    for (int index = 0; index < entries; ++index) {
      GidEntry entry =
          GidAt(index, random() % 2 == 0 ? GidType::kRoceV1 : GidType::kRoceV2,
                addresses[random() % addresses.size()], static_cast<int>(random() % 140) - 1);
      entry.is_here = random() % 3 != 0;
      gids.push_back(entry);
    }
    GidWishes wishes;
    if (random() % 2 == 0) wishes.peer = GidOf(addresses[1 + random() % (addresses.size() - 1)]);
    const auto choice = ChooseGid(gids, wishes);
    std::vector<GidEntry> shuffled = gids;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const auto again = ChooseGid(shuffled, wishes);
    ASSERT_EQ(choice.has_value(), again.has_value());
    const auto usable = [&](const GidEntry& entry) {
      const bool same_version =
          !wishes.peer || (TextOf(entry.gid).find(':') == std::string::npos) ==
                              (TextOf(*wishes.peer).find(':') == std::string::npos);
      return entry.type == GidType::kRoceV2 && entry.is_here && entry.gid != Gid{} && same_version;
    };
    ASSERT_EQ(choice.has_value(), std::any_of(gids.begin(), gids.end(), usable));
    if (!choice) continue;
    ++chosen;
    ASSERT_EQ(choice->index, again->index);
    ASSERT_TRUE(usable(gids.at(static_cast<size_t>(choice->index))));
  }
  EXPECT_GT(chosen, 1000);
}

TEST(GidChoice, WritesAddressesAsTheyAreKnown) {
  EXPECT_EQ(TextOf(GidOf("10.0.1.3")), "10.0.1.3");
  EXPECT_EQ(TextOf(GidOf("fe80::1")), "fe80::1");
}

}  // namespace
}  // namespace gantry::transport
