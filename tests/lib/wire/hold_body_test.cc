#include "lib/wire/hold_body.h"

#include <gtest/gtest.h>

#include "lib/wire/peer_messages.h"
#include "lib/wire/transfers_body.h"

namespace gantry::wire {
namespace {

std::string HoldWith(const std::string& members) { return R"({"workload":"a",)" + members + "}"; }

std::string RefusedHold(const std::string& members) {
  const auto hold = ReadHoldBody(BodyFormat::kJson, HoldWith(members));
  if (hold) return "accepted";
  return std::string(InfoOf(hold.error().code).name) + " " + hold.error().field;
}

std::string RefusedTransferOfBlocks(const std::string& members) {
  const auto transfers = ReadTransferBody(
      BodyFormat::kJson, R"({"workload":"a","local":["k"],"remote":["b/k"],"local_blocks":[1],)"
                         R"("remote_blocks":[1],)" +
                             members + "}");
  if (transfers) return "accepted";
  return std::string(InfoOf(transfers.error().code).name) + " " + transfers.error().field;
}

TEST(HoldBodyTest, ReadsEverything) {
  const auto hold = ReadHoldBody(
      BodyFormat::kJson,
      HoldWith(R"("groups":[{"buffers":["k","v"],"blocks":[3,0]},{"buffers":["w"]}],"ttl_ms":5,)"
               R"("expected_consumers":2)"));
  ASSERT_TRUE(hold) << hold.error().message;
  ASSERT_EQ(hold->groups.size(), 2u);
  EXPECT_EQ(hold->groups[0].buffers, (std::vector<std::string>{"k", "v"}));
  EXPECT_EQ(hold->groups[0].blocks, (std::vector<uint64_t>{3, 0}));
  EXPECT_FALSE(hold->groups[1].blocks);
  EXPECT_EQ(hold->ttl_ms, 5u);
  EXPECT_EQ(hold->expected_consumers, 2u);
}

TEST(HoldBodyTest, SaysWhatIsWrong) {
  EXPECT_EQ(RefusedHold(R"("ttl_ms":5)"), "malformed_body /groups");
  EXPECT_EQ(RefusedHold(R"("groups":[],"ttl_ms":5)"), "invalid_argument /groups");
  EXPECT_EQ(RefusedHold(R"("groups":[{}],"ttl_ms":5)"), "malformed_body /groups/0/buffers");
  EXPECT_EQ(RefusedHold(R"("groups":[{"buffers":[]}],"ttl_ms":5)"),
            "invalid_argument /groups/0/buffers");
  EXPECT_EQ(RefusedHold(R"("groups":[{"buffers":["k"],"blocks":[]}],"ttl_ms":5)"),
            "invalid_argument /groups/0/blocks");
  EXPECT_EQ(RefusedHold(R"("groups":[{"buffers":["k"]}])"), "malformed_body /ttl_ms");
  EXPECT_EQ(RefusedHold(R"("groups":[{"buffers":["k"]}],"ttl_ms":0)"), "invalid_argument /ttl_ms");
  EXPECT_FALSE(ReadHoldExtension(BodyFormat::kJson, HoldWith(R"("ttl_ms":0)")));
  EXPECT_TRUE(ReadHoldExtension(BodyFormat::kJson, HoldWith(R"("ttl_ms":1)")));
}

TEST(HoldBodyTest, ATransferReadsWhatItNames) {
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"read","hold":"h","hold_consumers":0)"), "accepted");
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"write","hold":"h")"), "invalid_argument /hold");
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"read","hold":"a/b")"), "accepted");
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"read","hold":"")"), "invalid_argument /hold");
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"read","hold_consumers":2)"),
            "invalid_argument /hold_consumers");
  EXPECT_EQ(RefusedTransferOfBlocks(R"("op":"read","hold":"h","hold_consumers":1000001)"),
            "invalid_argument /hold_consumers");
}

// What a peer says of a use is checked like everything from outside.
TEST(HoldBodyTest, APeersUseIsChecked) {
  const HoldUse use{"owner", "h", {{{{"k", 7}, {"v", 8}}, {{1, 2}}}, {{{"w", 9}}, {}}}, 500, 3};
  proto::UseHoldRequest good;
  ToMessage(use, &good);
  const auto again = FromMessage(good);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->workload, "owner");
  EXPECT_EQ(again->hold, "h");
  EXPECT_EQ(again->for_ms, 500u);
  EXPECT_EQ(again->consumers, 3u);
  ASSERT_EQ(again->parts.size(), 2u);
  EXPECT_EQ(again->parts[0].buffers[1].name, "v");
  EXPECT_EQ(again->parts[0].buffers[1].generation, 8u);
  EXPECT_EQ(again->parts[0].blocks, (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(again->parts[1].blocks);

  const auto refused = [&good](const auto& change) {
    proto::UseHoldRequest message = good;
    change(message);
    return !FromMessage(message);
  };
  EXPECT_TRUE(refused([](auto& message) { message.set_workload("a/b"); }));
  EXPECT_TRUE(refused([](auto& message) { message.set_hold(""); }));
  EXPECT_TRUE(refused([](auto& message) { message.clear_parts(); }));
  EXPECT_TRUE(refused([](auto& message) { message.set_consumers(1'000'001); }));
  EXPECT_TRUE(refused(
      [](auto& message) { message.mutable_parts(0)->mutable_buffers(0)->set_buffer("a/b"); }));
  EXPECT_TRUE(refused([](auto& message) {
    message.mutable_parts(0)->mutable_blocks()->Resize(kPeerHoldBlocksMax, 1);
    message.mutable_parts(1)->add_blocks(1);
  }));
  EXPECT_TRUE(refused([](auto& message) {
    for (int i = 0; i <= kPeerReferencesMax; ++i) message.add_parts()->set_whole(true);
  }));
}

TEST(HoldBodyTest, OneMessageEndsSoManyUses) {
  std::vector<HoldUseEnd> ends(kPeerHoldUseEndsMax);
  for (size_t i = 0; i < ends.size(); ++i) ends[i] = {i + 1, i % 3 != 0};
  proto::EndHoldUseRequest message;
  ToMessage(ends, &message);
  const auto again = FromMessage(message);
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->size(), ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ((*again)[i].use, ends[i].use);
    EXPECT_EQ((*again)[i].succeeded, ends[i].succeeded);
  }
  message.add_more()->set_use(7);
  EXPECT_FALSE(FromMessage(message));
}

}  // namespace
}  // namespace gantry::wire
