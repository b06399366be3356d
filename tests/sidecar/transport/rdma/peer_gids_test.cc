// Devices with several addresses: queue pairs have those that their peer's subnet has, and both
// ends agree on them.
#include "sidecar/transport/rdma/verbs/peer_gids.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/fake_verbs.h"
#include "tests/sidecar/transport/rdma/gid_entries.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {
namespace {

using gantry::testing::FakeFabric;
using gantry::testing::FakeVerbs;

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class PeerGidsTest : public ::testing::Test {
 protected:
  static std::vector<GidEntry> TwoSubnets() {
    return {V2(0, "fe80::1", 64), V2(1, "10.0.0.1", 24), V2(4, "10.0.1.1", 24)};
  }
  PeerGids Make(bool is_named = false) const { return {*device_, TwoSubnets()[1], is_named}; }
  static int IndexFor(PeerGids& gids, const std::string& peer) {
    const auto chosen = gids.For(GidOf(peer));
    EXPECT_TRUE(chosen) << chosen.error().message;
    return chosen ? chosen->index : -1;
  }

  FakeFabric fabric_;
  FakeVerbs host_{fabric_, {{.name = "nic", .gids = TwoSubnets()}}};
  const std::unique_ptr<VerbsDevice> device_ = *host_.Open("nic", 1);
};

TEST_F(PeerGidsTest, ItIsTheOneOfThePeersSubnetElseTheFirst) {
  auto gids = Make();
  EXPECT_EQ(IndexFor(gids, "10.0.0.9"), 1);
  EXPECT_EQ(IndexFor(gids, "10.0.1.9"), 4);
  EXPECT_EQ(IndexFor(gids, "10.9.9.9"), 1);
  EXPECT_EQ(IndexFor(gids, "fe80::9"), 0);
  EXPECT_EQ(gids.For(Gid{})->index, 1) << "a peer that does not say";
  PeerGids second(*device_, TwoSubnets()[2], false);
  EXPECT_EQ(IndexFor(second, "10.9.9.9"), 4) << "that of the start, not the lowest";
}

TEST_F(PeerGidsTest, OneThatAnOperatorNamesIsForAll) {
  auto gids = Make(true);
  EXPECT_EQ(IndexFor(gids, "10.0.1.9"), 1);
  EXPECT_EQ(IndexFor(gids, "fe80::9"), 1);
}

TEST_F(PeerGidsTest, AddressesThatComeLaterCount) {
  auto gids = Make();
  EXPECT_EQ(IndexFor(gids, "10.0.2.9"), 1);
  auto more = TwoSubnets();
  more.insert(more.begin() + 1, V2(7, "10.0.2.1", 24));
  host_.SetGids("nic", more);
  EXPECT_EQ(IndexFor(gids, "10.0.2.9"), 7);
  EXPECT_EQ(IndexFor(gids, "10.9.9.9"), 1);
}

TEST_F(PeerGidsTest, WhereNoneCanReachThePeerItIsSaid) {
  host_.SetGids("nic", {V2(1, "10.0.0.1", 24)});
  const auto refused = Make().For(GidOf("2001:db8::9"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPathUnavailable);
  EXPECT_NE(refused.error().message.find("nic: the peer's GID 2001:db8::9"), std::string::npos);
  EXPECT_FALSE(refused.error().hint.empty());
}

TEST_F(PeerGidsTest, AnotherOneThanTheFirstIsSaidOnceForEachPeer) {
  auto gids = Make();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    for (const char* peer : {"10.0.0.9", "10.0.1.8", "10.0.1.9", "10.9.9.9"}) IndexFor(gids, peer);
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(Count(said, "have another GID"), 2u) << said;
  EXPECT_EQ(Count(said, "\"peer_gid\":\"10.0.1.8\""), 1u) << said;
  EXPECT_EQ(Count(said, "10.0.1.1 of eth0, in the peer's subnet"), 2u) << said;
}

// The table of a device says no prefixes: they are those of the interfaces' addresses.
TEST_F(PeerGidsTest, PrefixesAreThoseOfTheNamespacesAddresses) {
  const auto lengths = PrefixLengths();
  ASSERT_TRUE(lengths.contains(GidOf("127.0.0.1")));
  EXPECT_EQ(lengths.at(GidOf("127.0.0.1")), 8);
  for (const auto& [gid, length] : lengths) EXPECT_GT(length, 0) << TextOf(gid);
  host_.SetGids("nic", {V2(1, "10.0.0.1"), V2(2, "127.0.0.1")});
  auto gids = Make();
  EXPECT_EQ(IndexFor(gids, "127.3.4.5"), 2);
  EXPECT_EQ(IndexFor(gids, "128.3.4.5"), 1);
}

// Between the subnets there is no router.
class TwoSubnetsTest : public ::testing::Test {
 protected:
  static std::vector<GidEntry> At(const std::vector<std::string>& addresses) {
    std::vector<GidEntry> gids;
    for (const std::string& address : addresses) {
      gids.push_back(V2(static_cast<int>(gids.size()) + 1, address, 24));
    }
    return gids;
  }
  // Whether bytes get from here to there.
  bool Moves(const std::vector<std::string>& here, const std::vector<std::string>& there,
             const RdmaOptions& options_here = {}) {
    FakeFabric fabric;
    FakeVerbs here_verbs(fabric, {{.name = "here", .gids = At(here)}});
    FakeVerbs there_verbs(fabric, {{.name = "there", .gids = At(there)}});
    RdmaWorld world(here_verbs, there_verbs, options_here, {});
    EXPECT_EQ(world.devices_->Addresses()[0].gid, GidOf(here[0]))
        << "peers are told that of the start";
    const gantry::testing::TestArena from(4096, 1);
    const gantry::testing::TestArena to(4096, 2);
    auto local = world.Local(from);
    auto remote = world.Remote(world.Describe(to));
    const auto operation = world.transport_.Start(
        world.WithNics(PlanOf(wire::Operation::kWrite, local, remote, 0, 0, from.size())), 0, 1);
    EXPECT_TRUE(world.Finish(*operation));
    return !operation->error() && std::memcmp(from.data(), to.data(), from.size()) == 0;
  }
};

TEST_F(TwoSubnetsTest, TheInitiatorTakesTheSubnetOfThePeersDevice) {
  EXPECT_TRUE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.0.2"}));
  EXPECT_TRUE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.1.2"}));
}

TEST_F(TwoSubnetsTest, TheOwnerTakesTheSubnetOfTheCaller) {
  EXPECT_TRUE(Moves({"10.0.0.1"}, {"10.0.0.2", "10.0.1.2"}));
  EXPECT_TRUE(Moves({"10.0.1.1"}, {"10.0.0.2", "10.0.1.2"}));
}

TEST_F(TwoSubnetsTest, WhereBothHaveBothTheyAgree) {
  EXPECT_TRUE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.0.2", "10.0.1.2"}));
  EXPECT_TRUE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.1.2", "10.0.0.2"}));
}

TEST_F(TwoSubnetsTest, WhatAnOperatorNamesIsTakenAndTheOwnerFollows) {
  RdmaOptions named;
  named.gid_index = 1;
  EXPECT_FALSE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.1.2"}, named));
  EXPECT_TRUE(Moves({"10.0.0.1", "10.0.1.1"}, {"10.0.1.2", "10.0.0.2"}, named));
}

}  // namespace
}  // namespace gantry::transport
