#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/base/base64.h"
#include "lib/wire/registration_body.h"
#include "lib/wire/request_bodies.h"
#include "lib/wire/transfers_body.h"
#include "tests/lib/wire/body_formats.h"

namespace gantry::wire {
namespace {

using nlohmann::json;

constexpr const char* kTransfer =
    R"({"workload":"a","op":"read","local":["k"],"remote":["p/b/k@00000000000000ff"],)"
    R"("ranges":[[0,1,0,2,3]]})";

// `kTransfer` with one member replaced or added.
std::string With(const std::string& name, const std::string& value) {
  std::string text = "{";
  const json transfer = json::parse(kTransfer);
  for (const auto& [key, old] : transfer.items()) {
    if (key != name) text += "\"" + key + "\":" + old.dump() + ",";
  }
  return text + "\"" + name + "\":" + value + "}";
}

// Error of the transfer body, "code /field", in JSON and in CBOR alike.
std::string Refused(const std::string& text) {
  auto from_json = ReadTransferBody(kJson, text);
  EXPECT_FALSE(from_json) << text.substr(0, 200);
  if (from_json) return "accepted";
  const std::string said =
      std::string(InfoOf(from_json.error().code).name) + " " + from_json.error().field;
  if (const json tree = json::parse(text, nullptr, false); !tree.is_discarded()) {
    auto from_cbor = ReadTransferBody(kCbor, CborOf(text));
    EXPECT_FALSE(from_cbor) << text.substr(0, 200);
  }
  return said;
}

TEST(TransferBodyTest, ReadsEverything) {
  const std::string text =
      R"({"id":"t1","workload":"a","op":"write","local":["k","v@0000000000000001"],)"
      R"("remote":["p/b/k","p/b/v"],"ranges":[[0,1,0,2,3],)"
      R"({"local":1,"local_offset":9223372036854775807,"remote":1,"remote_offset":0,"length":5}],)"
      R"("deadline_ms":10,"priority":-10,"require_path":["ipc","shm"],"user_data":"\u00e9",)"
      R"("executor":"peer"})";
  for (const auto format : {kJson, kCbor}) {
    const auto body = ReadTransferBody(format, format == kJson ? text : CborOf(text));
    ASSERT_TRUE(body) << body.error().message << body.error().field;
    ASSERT_EQ(body->requests.size(), 1u);
    EXPECT_FALSE(body->is_list);
    const TransferRequest& request = body->requests[0];
    EXPECT_EQ(request.id, "t1");
    EXPECT_EQ(request.operation, Operation::kWrite);
    EXPECT_EQ(request.local[1], (BufferReference{"", "", "v", 1}));
    EXPECT_EQ(request.remote[0], (BufferReference{"p", "b", "k", 0}));
    ASSERT_EQ(request.ranges.size(), 2u);
    EXPECT_EQ(request.ranges[0], (TransferRange{0, 1, 0, 2, 3}));
    EXPECT_EQ(request.ranges[1], (TransferRange{1, uint64_t{INT64_MAX}, 1, 0, 5}));
    EXPECT_EQ(request.deadline_ms, 10u);
    EXPECT_EQ(request.priority, -10);
    EXPECT_EQ(request.require_path, (std::vector<Path>{Path::kIpc, Path::kShm}));
    EXPECT_EQ(request.executor, Executor::kPeer);
    EXPECT_EQ(request.user_data, "\u00e9");
    EXPECT_FALSE(request.by_blocks);
  }
}

TEST(TransferBodyTest, TheExecutorIsOneOfThree) {
  const auto read = [](const std::string& text) {
    return ReadTransferBody(kCbor, CborOf(text))->requests[0].executor;
  };
  EXPECT_EQ(read(kTransfer), Executor::kAny);
  for (const Executor executor : {Executor::kAny, Executor::kSelf, Executor::kPeer}) {
    const std::string name(NameOf(executor));
    EXPECT_EQ(read(With("executor", "\"" + name + "\"")), executor) << name;
  }
  for (const char* wrong : {"\"\"", "\"PEER\"", "\"remote\"", "\"self \"", "\"pee\"", "\"0\""}) {
    EXPECT_EQ(Refused(With("executor", wrong)), "invalid_argument /executor") << wrong;
  }
  for (const char* wrong : {"1", "null", "true", "[\"self\"]", "{}"}) {
    EXPECT_EQ(Refused(With("executor", wrong)), "malformed_body /executor") << wrong;
  }
}

TEST(TransferBodyTest, ReadsListsAndBlocks) {
  const std::string one = R"({"workload":"a","op":"read","local":["k"],"remote":["b/k"],)"
                          R"("local_blocks":[1,2,3],"remote_blocks":[4,5,6]})";
  const auto body = ReadTransferBody(kJson, "[" + one + "," + one + "]");
  ASSERT_TRUE(body) << body.error().message;
  EXPECT_TRUE(body->is_list);
  ASSERT_EQ(body->requests.size(), 2u);
  EXPECT_TRUE(body->requests[1].by_blocks);
  EXPECT_EQ(body->requests[1].remote_blocks, (std::vector<uint64_t>{4, 5, 6}));
  EXPECT_TRUE(ReadTransferBody(kJson, "[]"));
}

TEST(TransferBodyTest, RefusesAnotherShape) {
  EXPECT_EQ(Refused(With("surprise", "1")), "malformed_body /surprise");
  EXPECT_EQ(Refused(With("a/b~c", "1")), "malformed_body /a~1b~0c");
  EXPECT_EQ(Refused(With("workload", "1")), "malformed_body /workload");
  EXPECT_EQ(Refused(With("workload", "null")), "malformed_body /workload");
  EXPECT_EQ(Refused(With("workload", "[\"a\"]")), "malformed_body /workload");
  EXPECT_EQ(Refused(With("local", "\"k\"")), "malformed_body /local");
  EXPECT_EQ(Refused(With("local", "[\"k\",3]")), "malformed_body /local/1");
  EXPECT_EQ(Refused(With("local", "[[\"k\"]]")), "malformed_body /local/0");
  EXPECT_EQ(Refused(With("ranges", "{}")), "malformed_body /ranges");
  EXPECT_EQ(Refused(With("ranges", "[0,0,0,0,1]")), "malformed_body /ranges/0");
  EXPECT_EQ(Refused(With("ranges", "[[0,0,0,0]]")), "malformed_body /ranges/0");
  EXPECT_EQ(Refused(With("ranges", "[[0,0,0,0,1,1]]")), "malformed_body /ranges/0/5");
  EXPECT_EQ(Refused(With("ranges", "[[0,0,0,0,[]]]")), "malformed_body /ranges/0/4");
  EXPECT_EQ(Refused(With("ranges", R"([{"local":0,"length":1}])")),
            "malformed_body /ranges/0/local_offset");
  EXPECT_EQ(Refused(With("deadline_ms", "true")), "malformed_body /deadline_ms");
  EXPECT_EQ(Refused(R"({"workload":"a"})"), "malformed_body /op");
  EXPECT_EQ(Refused("[[]]"), "malformed_body /0");
  EXPECT_EQ(Refused("[1]"), "malformed_body /0");
  EXPECT_EQ(Refused("3"), "malformed_body ");
  EXPECT_EQ(Refused("\"text\""), "malformed_body ");
}

TEST(TransferBodyTest, RefusesRepeatedFields) {
  const std::string twice = std::string(kTransfer).insert(1, R"("workload":"b",)");
  const auto body = ReadTransferBody(kJson, twice);
  ASSERT_FALSE(body);
  EXPECT_EQ(body.error().code, ErrorCode::kMalformedBody);
  EXPECT_EQ(body.error().field, "/workload");
  const auto range = ReadTransferBody(kJson, With("ranges", R"([{"local":0,"local":0}])"));
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().field, "/ranges/0/local");
  // {"id": "x", "id": "x"}
  const auto cbor = ReadTransferBody(kCbor, "\xa2\x62id\x61x\x62id\x61x");
  ASSERT_FALSE(cbor);
  EXPECT_EQ(cbor.error().field, "/id");
}

TEST(TransferBodyTest, RefusesNumbersThatAreNoSizes) {
  EXPECT_EQ(Refused(With("ranges", "[[0,-1,0,0,1]]")), "invalid_argument /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[0,9223372036854775808,0,0,1]]")),
            "invalid_argument /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[0,18446744073709551615,0,0,1]]")),
            "invalid_argument /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[0,18446744073709551616,0,0,1]]")),
            "malformed_body /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[0,1.0,0,0,1]]")), "malformed_body /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[0,1e3,0,0,1]]")), "malformed_body /ranges/0/1");
  EXPECT_EQ(Refused(With("ranges", "[[4294967296,0,0,0,1]]")), "invalid_argument /ranges/0/0");
  EXPECT_EQ(Refused(With("local_blocks", "[0,-5]")), "invalid_argument /local_blocks/1");
  EXPECT_EQ(Refused(With("priority", "11")), "invalid_argument /priority");
  EXPECT_EQ(Refused(With("priority", "-11")), "invalid_argument /priority");
  // As a signed number this would be -5.
  EXPECT_EQ(Refused(With("priority", "18446744073709551611")), "invalid_argument /priority");
  EXPECT_EQ(Refused(With("deadline_ms", "0")), "invalid_argument /deadline_ms");
  EXPECT_EQ(Refused(With("user_data", "\"" + std::string(1025, 'x') + "\"")),
            "invalid_argument /user_data");
}

TEST(TransferBodyTest, RefusesWhatMeansNothing) {
  EXPECT_EQ(Refused(With("op", "\"copy\"")), "invalid_argument /op");
  EXPECT_EQ(Refused(With("workload", "\"\"")), "invalid_argument /workload");
  EXPECT_EQ(Refused(With("id", "\"a/b\"")), "invalid_argument /id");
  EXPECT_EQ(Refused(With("local", "[\"w/k\"]")), "invalid_argument /local/0");
  EXPECT_EQ(Refused(With("remote", "[\"a/b/c/d\"]")), "invalid_argument /remote/0");
  EXPECT_EQ(Refused(With("remote", "[\"a/b@xyz\"]")), "invalid_argument /remote/0");
  EXPECT_EQ(Refused(With("local", "[]")), "invalid_argument /local");
  EXPECT_EQ(Refused(With("ranges", "[]")), "invalid_argument /ranges");
  EXPECT_EQ(Refused(With("local_blocks", "[1]")), "invalid_argument /ranges");
  EXPECT_EQ(Refused(With("local_blocks", "[]")), "invalid_argument /ranges");
  EXPECT_EQ(Refused(With("require_path", "[\"air\"]")), "invalid_argument /require_path/0");
  EXPECT_EQ(Refused(R"({"workload":"a","op":"read","local":["k"],"remote":["k"],)"
                    R"("local_blocks":[1,2],"remote_blocks":[1]})"),
            "invalid_argument /remote_blocks");
}

TEST(TransferBodyTest, RefusesWhatIsNoJson) {
  for (const char* text : {"", " ", "{", "{]", "{\"workload\":\"a\"", "nul", "{\"a\":}", "[1,]",
                           "{} {}", "{\"workload\":\"\xff\"}", "{\"workload\":\"\\ud800\"}",
                           "{\"workload\":01}", "\xef\xbb\xbf"}) {
    EXPECT_EQ(Refused(text).substr(0, 14), "malformed_body") << text;
  }
}

TEST(TransferBodyTest, DeepNestingEndsAtItsFirstLevel) {
  EXPECT_EQ(Refused(std::string(1'000'000, '[')), "malformed_body /0");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(Refused(objects), "malformed_body /a");
}

TEST(TransferBodyTest, DeepCborEndsAtItsFirstLevel) {
  for (const char byte : {'\x81', '\x9f', '\xbf', '\xa1', '\xc1', '\x7f', '\x5f', '\xd9'}) {
    const auto body = ReadTransferBody(kCbor, std::string(4'000'000, byte));
    ASSERT_FALSE(body);
    EXPECT_EQ(body.error().code, ErrorCode::kMalformedBody);
  }
  const std::string deep_key = "\xbf" + std::string(4'000'000, '\x7f');
  EXPECT_FALSE(ReadTransferBody(kCbor, deep_key));
}

TEST(TransferBodyTest, CborLengthsAreOnlyHints) {
  // A list of 2^60 elements, a text of 2^60 bytes, and a list that ends at once.
  for (const char* body : {"\x9b\x10\0\0\0\0\0\0\0", "\x7b\x10\0\0\0\0\0\0\0",
                           "\x9b\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    EXPECT_FALSE(ReadTransferBody(kCbor, std::string_view(body, 9)));
  }
}

TEST(TransferBodyTest, CborTextsAreUtf8) {
  std::string body = CborOf(With("user_data", "\"abc\""));
  body[body.find("abc")] = '\xff';
  const auto read = ReadTransferBody(kCbor, body);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().field, "/user_data");
}

TEST(TransferBodyTest, CborKnowsNoOtherTypes) {
  json transfer = json::parse(kTransfer);
  transfer["user_data"] = json::binary({1, 2, 3});
  const std::vector<uint8_t> bytes = json::to_cbor(transfer);
  const auto read =
      ReadTransferBody(kCbor, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().field, "/user_data");
}

TEST(TransferBodyTest, ManyRangesAndTooMany) {
  const auto ranges = [](size_t count, const char* range) {
    std::string list = "[";
    for (size_t i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + std::string(range);
    return list + "]";
  };
  const std::string many = With("ranges", ranges(65'536, "[0,4096,0,8192,4096]"));
  for (const auto format : {kJson, kCbor}) {
    const auto body = ReadTransferBody(format, format == kJson ? many : CborOf(many));
    ASSERT_TRUE(body) << body.error().message;
    EXPECT_EQ(body->requests[0].ranges.size(), 65'536u);
  }
  const std::string blocks = ranges(700'000, "7");
  EXPECT_EQ(Refused(R"({"workload":"a","op":"read","local":["k"],"remote":["k"],"local_blocks":)" +
                    blocks + R"(,"remote_blocks":)" + blocks + "}")
                .substr(0, 30),
            "body_too_large /remote_blocks/");
}

TEST(RegistrationBodyTest, AccessIsReadUnlessItIsSaid) {
  const auto read = [](const std::string& access) {
    return ReadRegistrationBody(
        kJson, R"({"workload":"a","allocations":[{"kind":"host","fd_token":"t","size":10}],)"
               R"("buffers":[{"name":"k","pieces":[{"allocation":0,"offset":1,"length":2}])" +
                   access + "}]}");
  };
  EXPECT_EQ(read("")->buffers[0].access, (Access{true, false}));
  EXPECT_EQ(read(R"(,"access":[])")->buffers[0].access, (Access{false, false}));
  EXPECT_EQ(read(R"(,"access":["remote_write"])")->buffers[0].access, (Access{false, true}));
  EXPECT_EQ(read(R"(,"access":["all"])").error().field, "/buffers/0/access/0");
  EXPECT_EQ(read(R"(,"layout":{"block_bytes":4,"block_stride":8,"blocks":2})")->buffers[0].layout,
            (BlockLayout{4, 8, 2}));
  EXPECT_EQ(read(R"(,"layout":{"block_bytes":4})").error().field, "/buffers/0/layout/block_stride");
  EXPECT_EQ(read(R"(,"layout":null)").error().field, "/buffers/0/layout");
  const auto whole = read("");
  EXPECT_EQ(whole->allocations[0], (AllocationSpec{MemoryKind::kHost, "t", 10}));
  EXPECT_EQ(whole->buffers[0].pieces[0], (Piece{0, 1, 2}));
}

TEST(RegistrationBodyTest, MemoryOfAGpu) {
  const auto read = [](const std::string& handle) {
    return ReadRegistrationBody(
        kJson,
        R"({"workload":"a","allocations":[{"kind":"gpu","size":10,"device_uuid":"GPU-1",)"
        R"("buffer_id":7,"pid":1,"ipc_handle":")" +
            handle +
            R"("}],"buffers":[{"name":"k","pieces":[{"allocation":0,"offset":1,"length":2}]}]})");
  };
  const auto request = read(Base64Of(std::string(kIpcHandleBytes, 'h')));
  ASSERT_TRUE(request) << request.error().message;
  const AllocationSpec& spec = request->allocations[0];
  EXPECT_EQ(spec.ipc_handle, std::string(kIpcHandleBytes, 'h'));
  EXPECT_EQ(spec.gpu(), (GpuFacts{GpuExport::kHandle, "GPU-1", 7, 1}));
  for (const std::string& wrong : {Base64Of(std::string(63, 'h')), std::string("?")}) {
    EXPECT_EQ(read(wrong).error().field, "/allocations/0/ipc_handle") << wrong;
  }
}

TEST(RegistrationBodyTest, MemoryOfAGpuThatLiesInADmaBuf) {
  const auto read = [](const std::string& offset) {
    return ReadRegistrationBody(
        kJson,
        R"({"workload":"a","allocations":[{"kind":"gpu","size":10,"device_uuid":"GPU-1",)"
        R"("buffer_id":7,"pid":1,"fd_token":"t")" +
            offset +
            R"(}],"buffers":[{"name":"k","pieces":[{"allocation":0,"offset":1,"length":2}]}]})");
  };
  const auto piece = read("");
  ASSERT_TRUE(piece) << piece.error().message;
  EXPECT_EQ(piece->allocations[0].gpu(), (GpuFacts{GpuExport::kPiece, "GPU-1", 7, 1}));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{8192}}) {
    const auto inside = read(",\"fd_offset\":" + std::to_string(offset));
    ASSERT_TRUE(inside) << inside.error().message;
    EXPECT_EQ(inside->allocations[0].gpu(), (GpuFacts{GpuExport::kDmaBuf, "GPU-1", 7, 1, offset}));
  }
  EXPECT_EQ(read(R"(,"fd_offset":-1)").error().field, "/allocations/0/fd_offset");
}

TEST(RegistrationBodyTest, ADmaBufOrWhyThereIsNone) {
  const auto read = [](const std::string& more) {
    return ReadRegistrationBody(
        kJson,
        R"({"workload":"a","allocations":[{"kind":"gpu","size":10)" + more +
            R"(}],"buffers":[{"name":"k","pieces":[{"allocation":0,"offset":1,"length":2}]}]})");
  };
  const auto with = read(R"(,"dma_buf":{"fd_token":"t","offset":512,"size":4096})");
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->allocations[0].dma_buf, (DmaBufSpec{"t", 512, 4096}));
  const auto without = read(R"(,"no_dma_buf_because":"why")");
  EXPECT_FALSE(without->allocations[0].dma_buf);
  EXPECT_EQ(without->allocations[0].no_dma_buf_because, "why");
  EXPECT_EQ(read(R"(,"dma_buf":{"fd_token":"t","offset":-1,"size":4096})").error().field,
            "/allocations/0/dma_buf/offset");
  EXPECT_EQ(read(R"(,"dma_buf":{"fd_token":"t","offset":0})").error().field,
            "/allocations/0/dma_buf/size");
  EXPECT_EQ(read(R"(,"no_dma_buf_because":")" + std::string(1025, 'x') + "\"").error().field,
            "/allocations/0/no_dma_buf_because");
}

TEST(RegistrationBodyTest, NoncesAreBase64OfOneToSixteenBytes) {
  const auto read = [](const std::string& places) {
    return ReadRegistrationBody(BodyFormat::kJson,
                                R"({"workload":"w","allocations":[],"buffers":[{"name":"b",
      "pieces":[{"allocation":0,"offset":0,"length":1}],"verify":)" +
                                    places + "}]}");
  };
  const auto two = read(R"([{"offset":0,"nonce":"AA=="},
                            {"offset":9,"nonce":"MDEyMzQ1Njc4OWFiY2RlZg=="}])");
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(
      two->buffers[0].verify,
      (std::vector<NoncePlace>{{0, std::string(1, '\0')}, {9, std::string("0123456789abcdef")}}));
  for (const char* wrong : {R"("")", R"("?")", R"("AA")", R"("MDEyMzQ1Njc4OWFiY2RlZmc=")"}) {
    const auto refused = read(std::string(R"([{"offset":0,"nonce":)") + wrong + "}]");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().field, "/buffers/0/verify/0/nonce") << wrong;
  }
  EXPECT_FALSE(read(R"([{"offset":0}])"));
  EXPECT_FALSE(read(R"([{"nonce":"AA=="}])"));
  EXPECT_FALSE(read(R"([{"offset":-1,"nonce":"AA=="}])"));
  EXPECT_FALSE(read("[]"));
}

TEST(RequestBodiesTest, ReadTheSmallOnes) {
  EXPECT_FALSE(ReadWorkloadBody(kJson, "")->engine_id);
  EXPECT_EQ(ReadWorkloadBody(kJson, R"({"engine_id":"e","ttl_ms":5})")->ttl_ms, 5u);
  EXPECT_EQ(ReadWorkloadBody(kJson, R"({"ttl_ms":0})").error().field, "/ttl_ms");
  EXPECT_EQ(ReadResolveBody(kJson, R"({"workload":"a","buffer":"k","offset":0})").error().field,
            "/length");
  EXPECT_FALSE(ReadSuspendBody(kJson, R"({"workload":"a"})")->buffers);
  EXPECT_TRUE(ReadSuspendBody(kJson, R"({"workload":"a","buffers":[]})")->buffers->empty());
  EXPECT_EQ(ReadResumeBody(kJson, R"({"workload":"a","drain_ms":1})").error().field, "/drain_ms");
  EXPECT_EQ(ReadPeerBody(kJson, R"({"address":"unix:/x"})")->address, "unix:/x");
  EXPECT_EQ(ReadPollBody(kJson, R"({"workload":"a","cursor":3,"max":0})").error().field, "/max");
  EXPECT_TRUE(ReadPollBody(kJson, R"({"workload":"a"})")->has_transfers);
  EXPECT_FALSE(ReadPollBody(kJson, R"({"workload":"a","transfers":"none"})")->has_transfers);
  EXPECT_EQ(ReadPollBody(kJson, R"({"workload":"a","transfers":"some"})").error().field,
            "/transfers");
}

}  // namespace
}  // namespace gantry::wire
