#include "lib/wire/view_body.h"

#include <gtest/gtest.h>

#include "lib/wire/transfers_body.h"
#include "tests/lib/wire/body_formats.h"

namespace gantry::wire {
namespace {

std::string ViewWith(const std::string& members) {
  return R"({"workload":"a","remote_workload":"b",)" + members + "}";
}
std::string TransferWith(const std::string& members) {
  return R"({"workload":"a","op":"read",)" + members + "}";
}

// "code /field", the same in JSON and in CBOR.
template <typename Read>
std::string RefusedBy(Read read, const std::string& text) {
  const auto from_json = read(kJson, text);
  const auto from_cbor = read(kCbor, CborOf(text));
  EXPECT_EQ(from_json.has_value(), from_cbor.has_value()) << text;
  if (from_json || from_cbor) return "accepted";
  EXPECT_EQ(from_json.error().field, from_cbor.error().field);
  return std::string(InfoOf(from_json.error().code).name) + " " + from_json.error().field;
}
std::string RefusedView(const std::string& members) {
  return RefusedBy(ReadViewBody, ViewWith(members));
}
std::string RefusedTransfer(const std::string& members) {
  return RefusedBy(ReadTransferBody, TransferWith(members));
}

TEST(ViewBodyTest, ReadsEverything) {
  const std::string text =
      ViewWith(R"("id":"v","peer":"p","slice":{"remote":{"offset":8,"length":4}},"groups":[)"
               R"({"group":7,"pairs":["k.*","v.1",["x","y@00000000000000ff"],)"
               R"({"local":"l@0000000000000001","remote":"r"}],"block_ratio":{"remote":4}},)"
               R"({"group":0,"pairs":"by_name","slice":[{},{"local":{"offset":0,"length":9}}]}])");
  for (const auto format : {kJson, kCbor}) {
    const auto view = ReadViewBody(format, format == kJson ? text : CborOf(text));
    ASSERT_TRUE(view) << view.error().message << view.error().field;
    EXPECT_EQ(view->id, "v");
    EXPECT_EQ(view->peer, "p");
    EXPECT_EQ(view->remote_workload, "b");
    EXPECT_TRUE(view->has_groups);
    ASSERT_EQ(view->groups.size(), 2u);
    const ViewGroup& first = view->groups[0];
    EXPECT_EQ(first.group, 7u);
    ASSERT_EQ(first.pairs.size(), 4u);
    EXPECT_EQ(first.pairs[0].local.buffer, "k.*");
    EXPECT_EQ(first.pairs[1].remote.buffer, "");
    EXPECT_EQ(first.pairs[2].remote, (BufferReference{"", "", "y", 0xff}));
    EXPECT_EQ(first.pairs[3].local, (BufferReference{"", "", "l", 1}));
    EXPECT_EQ(first.block_ratio, (BlockRatio{1, 4}));
    ASSERT_EQ(first.slices.size(), 1u);
    EXPECT_EQ(first.slices[0].remote, (ByteSlice{8, 4}));
    EXPECT_FALSE(first.slices[0].local);
    EXPECT_EQ(view->groups[1].pairs[0].local.buffer, "*");
    ASSERT_EQ(view->groups[1].slices.size(), 2u);
    EXPECT_EQ(view->groups[1].slices[1].local, (ByteSlice{0, 9}));
  }
}

TEST(ViewBodyTest, WithoutGroupsItIsGroupZero) {
  const auto view = ReadViewBody(kJson, ViewWith(R"("pairs":"by_name","block_ratio":{"local":2})"));
  ASSERT_TRUE(view);
  EXPECT_FALSE(view->has_groups);
  ASSERT_EQ(view->groups.size(), 1u);
  EXPECT_EQ(view->groups[0].group, 0u);
  EXPECT_EQ(view->groups[0].block_ratio, (BlockRatio{2, 1}));
}

TEST(ViewBodyTest, RefusesAnotherShape) {
  EXPECT_EQ(RefusedView(R"("id":"v")"), "malformed_body /pairs");
  EXPECT_EQ(RefusedView(R"("pairs":[])"), "invalid_argument /pairs");
  EXPECT_EQ(RefusedView(R"("pairs":"k.0")"), "invalid_argument /pairs");
  EXPECT_EQ(RefusedView(R"("pairs":3)"), "malformed_body /pairs");
  EXPECT_EQ(RefusedView(R"("pairs":{"local":"a","remote":"b"})"), "malformed_body /pairs");
  EXPECT_EQ(RefusedView(R"("pairs":[3])"), "malformed_body /pairs/0");
  EXPECT_EQ(RefusedView(R"("pairs":["a","b/c"])"), "invalid_argument /pairs/1");
  EXPECT_EQ(RefusedView(R"("pairs":["a",["b"]])"), "malformed_body /pairs/1");
  EXPECT_EQ(RefusedView(R"("pairs":[["a","p/w/b"]])"), "invalid_argument /pairs/0/1");
  EXPECT_EQ(RefusedView(R"("pairs":[["a*","b"]])"), "invalid_argument /pairs/0/0");
  EXPECT_EQ(RefusedView(R"("pairs":[{"local":"a"}])"), "malformed_body /pairs/0/remote");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"slice":[])"), "invalid_argument /slice");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"slice":{"local":{"offset":1}})"),
            "malformed_body /slice/local/length");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"slice":{"local":{"offset":1,"length":0}})"),
            "invalid_argument /slice/local/length");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"block_ratio":{"local":0})"),
            "invalid_argument /block_ratio/local");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"block_ratio":{"local":2,"remote":2})"),
            "invalid_argument /block_ratio");
  EXPECT_EQ(RefusedView(R"("pairs":["a"],"groups":[{"group":0,"pairs":["a"]}])"),
            "invalid_argument /pairs");
  EXPECT_EQ(RefusedView(R"("groups":[{"group":0}])"), "malformed_body /groups/0/pairs");
  EXPECT_EQ(RefusedView(R"("groups":[{"group":1,"pairs":["a"]},{"group":1,"pairs":["b"]}])"),
            "invalid_argument /groups/1/group");
}

TEST(ViewBodyTest, TransfersByView) {
  const std::string by_lists =
      TransferWith(R"("view":"v","local_blocks":[1,2,3],"remote_blocks":[4],"layers":[2,5])");
  auto body = ReadTransferBody(kJson, by_lists);
  ASSERT_TRUE(body) << body.error().message << body.error().field;
  EXPECT_EQ(body->requests[0].view, "v");
  EXPECT_TRUE(body->requests[0].by_blocks);
  EXPECT_EQ(body->requests[0].layers, (std::vector<uint64_t>{2, 5}));
  const std::string by_groups = TransferWith(
      R"("view":"v","groups":[{"group":3,"local_blocks":[1],"remote_blocks":[2],"layers":[0,0]}])");
  body = ReadTransferBody(kCbor, CborOf(by_groups));
  ASSERT_TRUE(body) << body.error().message << body.error().field;
  EXPECT_EQ(body->requests[0].groups[0], (TransferGroup{3, {1}, {2}, {0, 0}}));
}

TEST(ViewBodyTest, TransfersNameAViewOrBuffers) {
  const std::string blocks = R"("local_blocks":[1],"remote_blocks":[2])";
  const std::string group = R"({"group":0,"local_blocks":[1],"remote_blocks":[2])";
  EXPECT_EQ(RefusedTransfer(R"("view":"v")"), "invalid_argument /local_blocks");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","local":["k"],)" + blocks), "invalid_argument /view");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","ranges":[[0,0,0,0,1]])"), "invalid_argument /ranges");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","local_blocks":[1])"), "invalid_argument /remote_blocks");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","groups":[)" + group + "}]," + blocks),
            "invalid_argument /groups");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","layers":[3],)" + blocks), "invalid_argument /layers");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","layers":[3,2],)" + blocks), "invalid_argument /layers");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","layers":[1,2,3],)" + blocks),
            "invalid_argument /layers");
  EXPECT_EQ(RefusedTransfer(R"("view":"v","groups":[)" + group + R"(,"layers":[2,1]}])"),
            "invalid_argument /groups/0/layers");
  EXPECT_EQ(RefusedTransfer(R"("local":["k"],"remote":["b/k"],"groups":[)" + group + "}]"),
            "invalid_argument /view");
  EXPECT_EQ(RefusedTransfer(R"("local":["k"],)" + blocks), "malformed_body /remote");
}

TEST(ViewBodyTest, Fences) {
  const std::string rest = R"("local":["k"],"remote":["b/k"],"ranges":[[0,0,0,0,1]],"fence":)";
  const auto read = [&](const std::string& fence) {
    return ReadTransferBody(kJson, TransferWith(rest + fence));
  };
  EXPECT_FALSE(read(R"({"type":"none"})")->requests[0].fence);
  const auto timeline =
      read(R"({"type":"timeline","buffer":"c@0000000000000002","offset":8,"value":5})");
  ASSERT_TRUE(timeline);
  EXPECT_EQ(timeline->requests[0].fence, (TimelineFence{true, {"", "", "c", 2}, 8, 5}));
  const auto refused = [&](const std::string& fence) { return RefusedTransfer(rest + fence); };
  EXPECT_EQ(refused(R"({"type":"ipc_event"})"), "invalid_argument /fence/type");
  EXPECT_EQ(refused(R"({"type":"other"})"), "invalid_argument /fence/type");
  EXPECT_EQ(refused(R"({})"), "malformed_body /fence/type");
  EXPECT_EQ(refused(R"({"type":"timeline","value":1})"), "malformed_body /fence/buffer");
  EXPECT_EQ(refused(R"({"type":"timeline","buffer":"c"})"), "malformed_body /fence/value");
  EXPECT_EQ(refused(R"({"type":"timeline","buffer":"w/c","value":1})"),
            "invalid_argument /fence/buffer");
  EXPECT_EQ(refused(R"({"type":"timeline","buffer":"c","value":0})"),
            "invalid_argument /fence/value");
  EXPECT_NE(read(R"({"type":"ipc_event"})").error().message.find("probed"), std::string::npos);
}

}  // namespace
}  // namespace gantry::wire
