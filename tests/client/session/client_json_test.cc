#include "client/session/client_json.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "client/memory/sealed_memfd.h"
#include "client/session/transfer_body.h"

namespace gantry::client {
namespace {

using Json = nlohmann::json;

TEST(ClientJson, RegistrationNamesEachArenaOnce) {
  const auto arena =
      Arena::Map(CreateSealedMemfd("test", 8192).value(), 8192, nullptr, true).value();
  arena->fd_token = "tok";
  const std::vector<BufferRequest> buffers = {
      {"a", {Extent{arena, 0, 100}, Extent{arena, 4096, 50}}, {.remote_read = true}, std::nullopt},
      {"b", {Extent{arena, 200, 300}}, {.remote_write = true}, wire::BlockLayout{10, 20, 15}}};
  EXPECT_EQ(Json::parse(RegistrationBody("w", buffers)), Json::parse(R"({
    "workload": "w",
    "allocations": [{"kind": "host", "fd_token": "tok", "size": 8192}],
    "buffers": [
      {"name": "a", "access": ["remote_read"],
       "pieces": [{"allocation": 0, "offset": 0, "length": 100}, {"allocation": 0, "offset": 4096, "length": 50}]},
      {"name": "b", "access": ["remote_write"], "pieces": [{"allocation": 0, "offset": 200, "length": 300}],
       "layout": {"block_bytes": 10, "block_stride": 20, "blocks": 15}}]})"));
}

TEST(ClientJson, TransferByBlocks) {
  const std::vector<uint64_t> local = {3, ~uint64_t{0}}, remote = {7, 9};
  const char* name = "pod-a/w/\"b\"";
  gantry_transfer_spec spec = {};
  spec.remote = &name;
  spec.remote_count = 1;
  spec.local_blocks = local.data();
  spec.remote_blocks = remote.data();
  spec.block_count = 2;
  spec.deadline_ms = 100;
  spec.priority = -3;
  spec.require_path = "ipc,shm";
  spec.user_data = "mine";
  const std::vector<std::string> references = {"k@00aa"};
  EXPECT_EQ(Json::from_cbor(TransferBody("w", "t", spec, {references, "", ""})), Json::parse(R"({
    "id": "t", "workload": "w", "op": "read", "local": ["k@00aa"], "remote": ["pod-a/w/\"b\""],
    "local_blocks": [3, 18446744073709551615], "remote_blocks": [7, 9], "deadline_ms": 100, "priority": -3,
    "require_path": ["ipc", "shm"], "user_data": "mine"})"));
}

TEST(ClientJson, TransferByRanges) {
  const gantry_range range = {1, 2, 3, 4, 5};
  const char* name = "w/b";
  gantry_transfer_spec spec = {};
  spec.operation = GANTRY_WRITE;
  spec.remote = &name;
  spec.remote_count = 1;
  spec.ranges = &range;
  spec.range_count = 1;
  const std::vector<std::string> references = {"k"};
  const Json body = Json::from_cbor(TransferBody("w", "t", spec, {references, "", ""}));
  EXPECT_EQ(body["op"], "write");
  EXPECT_EQ(body["ranges"], Json::parse("[[1, 3, 2, 4, 5]]"));
  EXPECT_FALSE(body.contains("local_blocks"));
}

TEST(TransferBodyTest, NamesItsExecutorUnlessItIsAny) {
  const uint64_t block = 1;
  gantry_transfer_spec spec = {};
  spec.local_blocks = spec.remote_blocks = &block;
  spec.block_count = 1;
  EXPECT_FALSE(Json::from_cbor(TransferBody("w", "t", spec, {})).contains("executor"));
  spec.executor = GANTRY_EXECUTOR_SELF;
  EXPECT_EQ(Json::from_cbor(TransferBody("w", "t", spec, {}))["executor"], "self");
  spec.executor = GANTRY_EXECUTOR_PEER;
  EXPECT_EQ(Json::from_cbor(TransferBody("w", "t", spec, {}))["executor"], "peer");
}

TEST(TransferBodyTest, NumbersOfEverySize) {
  const std::vector<uint64_t> blocks = {0,      23,     24,          255,         256,
                                        65'535, 65'536, 4294967295u, 4294967296u, ~uint64_t{0}};
  gantry_transfer_spec spec = {};
  spec.local_blocks = blocks.data();
  spec.remote_blocks = blocks.data();
  spec.block_count = blocks.size();
  for (const int priority : {-10, -1, 1, 10}) {
    spec.priority = priority;
    const Json body = Json::from_cbor(TransferBody("w", "t", spec, {}));
    EXPECT_EQ(body["local_blocks"], Json(blocks));
    EXPECT_EQ(body["priority"], priority);
  }
}

TEST(ClientJson, AnswersThatAreNoneAreErrors) {
  for (const char* body : {"", "[]", "{}", "\xff", "{\"buffers\":[1]}", "{\"buffers\":[{}]}",
                           "null", "{\"state\":7}", "{\"state\":\"odd\"}", "{\"lease_token\":1}"}) {
    EXPECT_FALSE(ReadLease(body)) << body;
    EXPECT_FALSE(ReadBuffers(body)) << body;
    EXPECT_FALSE(ReadTransfer(body)) << body;
  }
}

TEST(ClientJson, ALeaseOfASidecarThatKnowsNoDmaBufsWantsNone) {
  const auto wants = [](const std::string& more) {
    return ReadLease(R"({"lease_token":"t","generation":"g")" + more + "}")->wants_dma_bufs;
  };
  EXPECT_FALSE(wants(""));
  EXPECT_FALSE(wants(R"(,"wants_dma_bufs":false)"));
  EXPECT_FALSE(wants(R"(,"wants_dma_bufs":1)"));
  EXPECT_TRUE(wants(R"(,"wants_dma_bufs":true)"));
  const char* const takes = R"({"lease_token":"t","generation":"g","takes_unsealed_memory":true})";
  EXPECT_TRUE(ReadLease(takes)->takes_unsealed_memory);
  EXPECT_FALSE(ReadLease(R"({"lease_token":"t","generation":"g"})")->takes_unsealed_memory);
}

std::string CborOf(const Json& tree) {
  const std::vector<uint8_t> bytes = Json::to_cbor(tree);
  return {bytes.begin(), bytes.end()};
}

TEST(ClientJson, ReadsATransferInBothFormats) {
  constexpr std::string_view kAnswer =
      R"({"state":"failed","path":"shm","bytes":10,"bytes_moved":4,"chunks":3,"chunks_moved":1,"descriptors_in":8,
          "descriptors_out":5,"workers":2,"timings":{"admit_us":1,"queue_us":2,"move_us":3,"copy_us":4,"total_us":5},
          "error":{"code":"worker_lost","detail":"gone"}})";
  const Json tree = Json::parse(kAnswer);
  for (const std::string& body : {std::string(kAnswer), CborOf(tree)}) {
    const auto answer = ReadTransfer(body);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status.state, GANTRY_FAILED);
    EXPECT_STREQ(answer->status.path, "shm");
    EXPECT_EQ(answer->status.executor, GANTRY_EXECUTOR_ANY);  // an older sidecar does not say
    EXPECT_EQ(answer->status.bytes_moved, 4U);
    EXPECT_EQ(answer->status.descriptors_out, 5U);
    EXPECT_EQ(answer->status.total_us, 5U);
    ASSERT_TRUE(answer->error);
    EXPECT_EQ(answer->error->code, ErrorCode::kWorkerLost);
    const auto json = answer->Json();
    ASSERT_TRUE(json);
    EXPECT_EQ(Json::parse(*json), tree);
  }
}

TEST(ClientJson, AnswersInCborThatAreNoneAreErrors) {
  const std::string body = CborOf(Json::parse(R"({"state":"running","bytes":1000,"id":"t"})"));
  ASSERT_TRUE(ReadTransfer(body));
  for (size_t bytes = 1; bytes < body.size(); ++bytes) {
    EXPECT_FALSE(ReadTransfer(body.substr(0, bytes)));
  }
  for (const std::string& nested :
       {"\xa1" + std::string(4'000'000, '\x7f'), "\xa1\x61x" + std::string(4'000'000, '\x81')}) {
    EXPECT_FALSE(ReadTransfer(nested)) << "and the stack is as deep as it was";
  }
}

TEST(ClientJson, MembersHaveAnyOrderAndOthersAroundThem) {
  const auto transfer = ReadTransfer(
      R"({"paths":[{"path":"ipc","reason":"bytes"},{"path":"tcp"}],"timings":{"total_us":9,"bytes":1,"admit_us":8},
          "more":{"state":"failed","bytes":[2,[{"bytes":3}]]},"bytes_moved":6,"error":null,"bytes":7,"chunks":"many",
          "path":"shm","state":"succeeded"})");
  ASSERT_TRUE(transfer);
  EXPECT_EQ(transfer->status.state, GANTRY_SUCCEEDED);
  EXPECT_STREQ(transfer->status.path, "shm");
  EXPECT_EQ(transfer->status.bytes, 7U);
  EXPECT_EQ(transfer->status.bytes_moved, 6U);
  EXPECT_EQ(transfer->status.chunks, 0U);
  EXPECT_EQ(transfer->status.admit_us, 8U);
  EXPECT_EQ(transfer->status.total_us, 9U);
  EXPECT_FALSE(transfer->error);
  const auto buffers = ReadBuffers(
      R"({"buffers":[{"generation":"1","name":"a","id":"b-a","access":["name"]},{"id":"b-b","name":"b","generation":"2"}],
          "allocations":[{"id":"x"}]})");
  ASSERT_TRUE(buffers);
  ASSERT_EQ(buffers->size(), 2U);
  EXPECT_EQ((*buffers)[0].name + (*buffers)[0].id + (*buffers)[0].generation, "ab-a1");
  EXPECT_EQ((*buffers)[1].name + (*buffers)[1].id + (*buffers)[1].generation, "bb-b2");
  const auto view = ReadView(
      R"({"pairs":[{"local":"a@1","group":3},{"group":4,"remote":"p/w/b","local":"b"}],"pair_count":2,"id":"v"})");
  ASSERT_TRUE(view);
  EXPECT_EQ(view->id, "v");
  ASSERT_EQ(view->pairs.size(), 2U);
  EXPECT_EQ(view->pairs[0].local + std::to_string(view->pairs[0].group), "a3");
  EXPECT_EQ(view->pairs[1].local + std::to_string(view->pairs[1].group), "b4");
}

// Also of many, which are found in another way.
TEST(ClientJson, OfMembersAtOnePathTheLastCounts) {
  const auto transfer = ReadTransfer(
      R"({"state":"running","bytes":1,"state":"failed","bytes":2,"chunks":3,"chunks":"none"})");
  ASSERT_TRUE(transfer);
  EXPECT_EQ(transfer->status.state, GANTRY_FAILED);
  EXPECT_EQ(transfer->status.bytes, 2U);
  EXPECT_EQ(transfer->status.chunks, 0U);
  EXPECT_FALSE(ReadTransfer(R"({"state":"running","state":7})"));
  EXPECT_FALSE(ReadView(R"({"id":"v","id":"","pairs":[]})"));
  std::string list;
  for (int i = 0; i < 100; ++i) {
    const std::string digits = std::to_string(i);
    list += (i == 0 ? "" : ",") + std::string(R"({"generation":"0","name":"n)") + digits +
            R"(","id":"b)" + digits + R"(","generation":"g)" + digits + "\"}";
  }
  const auto buffers = ReadBuffers(R"({"buffers":[)" + list + "]}");
  ASSERT_TRUE(buffers);
  ASSERT_EQ(buffers->size(), 100U);
  for (size_t i = 0; i < buffers->size(); ++i) {
    const std::string digits = std::to_string(i);
    const BufferAnswer& buffer = (*buffers)[i];
    EXPECT_EQ(buffer.name + buffer.id + buffer.generation,
              "n" + digits + "b" + digits + "g" + digits);
  }
}

uint64_t MostResidentBytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

TEST(ClientJson, AnAnswerWithALongPathTakesNoMoreMemoryThanItHas) {
  std::string body = R"({"state":"running",")" + std::string(100'000, 'k') + R"(":{"id":0)";
  for (int i = 0; i < 10'000; ++i) body += R"(,"id":0)";
  const uint64_t before = MostResidentBytes();
  ASSERT_TRUE(ReadTransfer(body + "}}"));
  std::string ids = "{\"state\":\"running\",\"" + std::string(100'000, 'k') + R"(":[{"code":"a"})";
  for (int i = 0; i < 10'000; ++i) ids += R"(,{"code":"a"})";
  ASSERT_TRUE(ReadTransfer(ids + "]}"));
  EXPECT_LT(MostResidentBytes() - before, uint64_t{64} << 20);
}

TEST(ClientJson, ReadsWhoMovesTheBytes) {
  const auto executor = [](const std::string& name) {
    return ReadTransfer(R"({"state":"running","executor":")" + name + "\"}")->status.executor;
  };
  EXPECT_EQ(executor("self"), GANTRY_EXECUTOR_SELF);
  EXPECT_EQ(executor("peer"), GANTRY_EXECUTOR_PEER);
  EXPECT_EQ(executor("somebody"), 0);  // from the future
}

}  // namespace
}  // namespace gantry::client
