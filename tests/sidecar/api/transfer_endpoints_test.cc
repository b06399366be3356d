// /v1/transfers and the events that tell of them.
#include <nlohmann/json.hpp>
#include <thread>

#include "sidecar/api/transfer_view.h"
#include "tests/sidecar/api/api_fixture.h"

namespace gantry::api {
namespace {

using ::gantry::testing::TestArena;
using nlohmann::json;

constexpr size_t kArenaBytes = 1 << 20;

class TransferEndpointsTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    token_ = Enlist("a");
    Enlist("b");
    AddBuffer("a", "k", arena_a_);
    AddBuffer("b", "k", arena_b_);
  }
  static std::string Body(const std::string& what, const std::string& more = "") {
    return R"({"workload":"a","op":"read","local":["k"],"remote":["b/k"],)" + what + more + "}";
  }

  static std::string Ranges(int count) {
    std::string ranges;
    for (int i = 0; i < count; ++i) {
      const std::string at = std::to_string(2 * i);
      ranges += (i > 0 ? ",[0," : "[0,") + at + ",0," + at + ",1]";
    }
    return ranges;
  }

  TestArena arena_a_{kArenaBytes, 1};
  TestArena arena_b_{kArenaBytes, 2};
  std::string token_;
};

TEST_F(TransferEndpointsTest, OnePostMovesBytes) {
  const http::RawResponse response =
      client_->Post("/v1/transfers?wait_ms=5000", Body(R"("ranges":[[0,100,0,4096,5000]])"));
  ASSERT_EQ(response.status, 200) << response.body;
  const json transfer = json::parse(response.body);
  EXPECT_EQ(transfer["state"], "succeeded");
  EXPECT_EQ(transfer["path"], "shm");
  EXPECT_EQ(transfer["executor"], "self");
  EXPECT_FALSE(transfer.contains("requested_by"));
  EXPECT_EQ(transfer["bytes_moved"], 5000);
  EXPECT_FALSE(transfer.contains("error"));
  EXPECT_EQ(std::memcmp(arena_a_.data() + 100, arena_b_.data() + 4096, 5000), 0);
}

TEST(TransferView, SaysWhoMovesTheBytesAndForWhom) {
  const auto view = [](const engine::TransferStatus& status) {
    wire::BodyWriter writer(wire::BodyFormat::kJson);
    WriteTransfer(status, &writer);
    return json::parse(std::move(writer).Take());
  };
  engine::TransferStatus here, there;
  here.requested_by = "pod-b";
  EXPECT_EQ(view(here)["executor"], "self");
  EXPECT_EQ(view(here)["requested_by"], "pod-b");
  there.executed_by_peer = true;
  there.path = wire::Path::kTcp;
  EXPECT_EQ(view(there)["executor"], "peer");
  EXPECT_EQ(view(there)["path"], "tcp");
  EXPECT_FALSE(view(there).contains("requested_by"));
}

// Before its body is understood, as reading it takes about as long as waking up.
TEST_F(TransferEndpointsTest, WhoCopiesIsWokenAsSoonAsARequestIsThere) {
  const std::string body = Body(R"("ranges":[[0,0,0,0,64]])");
  ASSERT_EQ(client_->Post("/v1/transfers?wait_ms=5000", body).status, 200);
  std::this_thread::sleep_for(milliseconds(2));
  pool_.TakeWoken();
  EXPECT_EQ(client_->Post("/v1/transfers", "{").status, 400);
  EXPECT_EQ(pool_.TakeWoken().size(), 1U);
  EXPECT_EQ(client_->Get("/v1/transfers?workload=a").status, 200);
  EXPECT_EQ(pool_.TakeWoken().size(), 0U);
}

TEST_F(TransferEndpointsTest, CborSaysTheSame) {
  const json body = json::parse(Body(R"("local_blocks":[0,1],"remote_blocks":[9,8])"));
  const std::vector<uint8_t> bytes = json::to_cbor(body);
  const http::RawResponse response = client_->Post(
      "/v1/transfers?wait_ms=5000", {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
      "Content-Type: application/cbor\r\nAccept: application/cbor\r\n");
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "application/cbor");
  EXPECT_EQ(json::from_cbor(response.body)["bytes_moved"], 8192);
  EXPECT_EQ(std::memcmp(arena_a_.data(), arena_b_.data() + 9 * 4096, 4096), 0);
}

TEST_F(TransferEndpointsTest, AListIsAdmittedOneByOne) {
  const std::string good = Body(R"("ranges":[[0,0,0,0,64]],"id":"good")");
  const std::string bad = Body(R"("ranges":[[0,0,0,1048570,64]],"id":"bad")");
  const std::string foreign =
      R"({"workload":"nobody","op":"read","local":["k"],"remote":["k"],"ranges":[[0,0,0,0,1]]})";
  const http::RawResponse response =
      client_->Post("/v1/transfers?wait_ms=5000", "[" + good + "," + bad + "," + foreign + "]");
  ASSERT_EQ(response.status, 200) << response.body;
  const json outcomes = json::parse(response.body);
  EXPECT_EQ(outcomes[0]["transfer"]["state"], "succeeded");
  EXPECT_EQ(outcomes[1]["id"], "bad");
  EXPECT_EQ(outcomes[1]["error"]["code"], "out_of_range");
  EXPECT_EQ(outcomes[2]["error"]["code"], "not_found");
  EXPECT_EQ(client_->Post("/v1/transfers", "[]").body, "[]");
}

TEST_F(TransferEndpointsTest, OneThatTakesLongIsAskedForAndCancelled) {
  pool_.Hold();
  http::RawResponse response =
      client_->Post("/v1/transfers", Body(R"("ranges":[[0,0,0,0,64]],"id":"t")"));
  EXPECT_EQ(response.status, 202) << response.body;
  EXPECT_EQ(client_->Get("/v1/transfers/t?workload=a&wait_ms=10").status, 202);
  EXPECT_EQ(
      json::parse(client_->Get("/v1/transfers?workload=a&active=true").body)["transfers"].size(),
      1u);
  EXPECT_EQ(client_->Get("/v1/transfers/t").field(), "?workload");
  EXPECT_EQ(client_->Get("/v1/transfers/t?workload=b").code(), "not_found");
  response = client_->Request("DELETE", "/v1/transfers/t?workload=a");
  EXPECT_EQ(response.status, 202);
  pool_.Release();
  response = client_->Request("DELETE", "/v1/transfers/t?workload=a&wait_ms=5000");
  EXPECT_EQ(response.status, 200);
  // What was already posted when the request to stop came may have arrived whole.
  EXPECT_TRUE(response.Text("state") == "cancelled" || response.Text("state") == "succeeded");
}

TEST_F(TransferEndpointsTest, TheSameIdAgain) {
  const std::string body = Body(R"("ranges":[[0,0,0,0,64]],"id":"t")");
  EXPECT_EQ(client_->Post("/v1/transfers?wait_ms=5000", body).status, 200);
  EXPECT_EQ(client_->Post("/v1/transfers?wait_ms=5000", body).status, 200);
  const http::RawResponse response =
      client_->Post("/v1/transfers", Body(R"("ranges":[[0,0,0,0,65]],"id":"t")"));
  EXPECT_EQ(response.code(), "conflict");
  const std::string same = body.substr(0, body.size() - 1);
  EXPECT_EQ(client_->Post("/v1/transfers", same + R"(,"executor":"any"})").status, 200);
  EXPECT_EQ(client_->Post("/v1/transfers", same + R"(,"executor":"self"})").code(), "conflict");
}

// Each thing that callers get wrong, the code and the field that they are told.
TEST_F(TransferEndpointsTest, BadInputsHaveStableCodes) {
  struct Case {
    std::string body, refusal;
  };
  const std::string range = R"("ranges":[[0,0,0,0,64]])";
  std::string many = R"("ranges":[)";
  for (int i = 0; i < 65'536; ++i) many += (i == 0 ? "" : ",") + std::string("[0,0,0,0,1]");
  const std::vector<Case> cases = {
      {Body(range, R"(,"fence":"none")"), "400 malformed_body /fence"},
      {Body(R"("ranges":[[0,0,0,0,"64"]])"), "400 malformed_body /ranges/0/4"},
      {Body(R"("ranges":[[0,0,0,0,-64]])"), "400 invalid_argument /ranges/0/4"},
      {Body(R"("ranges":[[0,9223372036854775808,0,0,1]])"), "400 invalid_argument /ranges/0/1"},
      {Body(R"("ranges":[[0,99999999999999999999,0,0,1]])"), "400 malformed_body /ranges/0/1"},
      {Body(R"("ranges":[[0,0.5,0,0,1]])"), "400 malformed_body /ranges/0/1"},
      {Body(R"("op":"write",)" + range), "400 malformed_body /op"},
      {Body(R"("ranges":[[0,9223372036854775807,0,0,9223372036854775807]])"),
       "400 out_of_range /ranges/0"},
      {Body(R"("ranges":[[1,0,0,0,1]])"), "400 invalid_argument"},
      {Body(R"("local_blocks":[256],"remote_blocks":[0])"), "400 out_of_range /local_blocks/0"},
      {Body(many + "]"), "400 overlap /ranges/"},
      {std::string(1'000'000, '['), "400 malformed_body /0"},
      {"", "400 malformed_body "},
      {"not json", "400 malformed_body "},
      {Body(range) + "x", "400 malformed_body "},
      {Body(range, R"(,"require_path":["rdma"])"), "409 path_unavailable /require_path"},
      {Body(range, R"(,"executor":"nobody")"), "400 invalid_argument /executor"},
      {Body(range, R"(,"executor":1)"), "400 malformed_body /executor"},
      {R"({"workload":"a","op":"read","local":["k@00000000000000aa"],"remote":["b/k"],)" + range +
           "}",
       "409 stale_generation /local/0"},
      {R"({"workload":"a","op":"read","local":["none"],"remote":["b/k"],)" + range + "}",
       "404 unregistered /local/0"},
  };
  for (const Case& each : cases) {
    const http::RawResponse response = client_->Post("/v1/transfers", each.body);
    const std::string refusal =
        std::to_string(response.status) + " " + response.code() + " " + response.field();
    EXPECT_EQ(refusal.substr(0, each.refusal.size()), each.refusal) << each.body.substr(0, 200);
    EXPECT_EQ(response.headers.at("content-type"), "application/problem+json");
  }
  EXPECT_EQ(client_->Post("/v1/transfers", Body(range), "Content-Type: text/plain\r\n").code(),
            "unsupported_media_type");
  EXPECT_EQ(client_->Post("/v1/transfers", Body(range), "").code(), "unsupported_media_type");
  EXPECT_EQ(client_->Post("/v1/transfers?wait=1", Body(range)).field(), "?wait");
  EXPECT_EQ(client_->Post("/v1/transfers?wait_ms=1&wait_ms=2", Body(range)).field(), "?wait_ms");
  EXPECT_EQ(client_->Post("/v1/transfers?wait_ms=x", Body(range)).field(), "?wait_ms");
  EXPECT_TRUE(engine_->List("", false, 10).empty());
}

TEST_F(TransferEndpointsTest, SixtyFiveThousandRangesAreFine) {
  std::string many = R"("ranges":[)";
  for (int i = 0; i < 65'536; ++i) {
    const std::string at = std::to_string(i * 16);
    many += (i == 0 ? "[0," : ",[0,") + at + ",0," + at + ",8]";
  }
  const http::RawResponse response = client_->Post("/v1/transfers?wait_ms=20000", Body(many + "]"));
  ASSERT_EQ(response.status, 200) << response.body.substr(0, 500);
  EXPECT_EQ(json::parse(response.body)["descriptors_in"], 65'536);
  EXPECT_EQ(response.Text("state"), "succeeded");
}

TEST_F(TransferEndpointsTest, EventsArePolledAfterACursor) {
  ASSERT_EQ(client_
                ->Post("/v1/transfers?wait_ms=5000",
                       Body(R"("ranges":[[0,0,0,0,64]],"id":"t","user_data":"mine")"))
                .status,
            200);
  http::RawResponse response =
      client_->Post("/v1/completions:poll", R"({"workload":"a","cursor":0,"wait_ms":2000})");
  const json page = json::parse(response.body);
  ASSERT_EQ(page["events"].size(), 1u) << response.body;
  EXPECT_EQ(page["events"][0]["type"], "transfer");
  EXPECT_EQ(page["events"][0]["subject"], "t");
  EXPECT_EQ(page["events"][0]["transfer"]["user_data"], "mine");
  EXPECT_EQ(page["lost"], 0);
  const std::string after = std::to_string(page["cursor"].get<uint64_t>());
  response = client_->Post("/v1/completions:poll", R"({"workload":"a","cursor":)" + after + "}");
  EXPECT_TRUE(json::parse(response.body)["events"].empty());
}

TEST_F(TransferEndpointsTest, EventsArePolledWithoutTransfers) {
  client_->Post("/v1/transfers?wait_ms=5000", Body(R"("ranges":[[0,0,0,0,64]],"id":"t")"));
  events_.Append({0, engine::EventType::kPeerUp, {}, "prefill", {}, nullptr});
  const http::RawResponse response = client_->Post(
      "/v1/completions:poll", R"({"workload":"a","cursor":0,"wait_ms":2000,"transfers":"none"})");
  const json page = json::parse(response.body);
  ASSERT_EQ(page["events"].size(), 1u) << response.body;
  EXPECT_EQ(page["events"][0]["subject"], "prefill");
  EXPECT_EQ(page["cursor"], events_.last_sequence());
}

TEST_F(TransferEndpointsTest, EventsOfAnEarlierRegistrationAreNotSeen) {
  const std::string ranges = R"("ranges":[[0,0,0,0,64]])";
  client_->Post("/v1/transfers?wait_ms=5000", Body(ranges + R"(,"id":"before")"));
  ASSERT_EQ(client_->Request("DELETE", "/v1/workloads/a").status, 204);
  ASSERT_TRUE(registry_.RemoveAll("a", generations_["a"], Clock::now() + milliseconds(1'000)));
  Enlist("a");
  AddBuffer("a", "k", arena_a_);
  client_->Post("/v1/transfers?wait_ms=5000", Body(ranges + R"(,"id":"after")"));
  events_.Append({0, engine::EventType::kPeerUp, {}, "prefill", {}, nullptr});
  const http::RawResponse response =
      client_->Post("/v1/completions:poll", R"({"workload":"a","cursor":0,"wait_ms":2000})");
  const json events = json::parse(response.body)["events"];
  ASSERT_EQ(events.size(), 2u) << response.body;
  EXPECT_EQ(events[0]["subject"], "after");
  EXPECT_EQ(events[1]["subject"], "prefill");
}

TEST_F(TransferEndpointsTest, EventsAreStreamed) {
  client_->Post("/v1/transfers?wait_ms=5000", Body(R"("ranges":[[0,0,0,0,64]],"id":"first")"));
  http::RawHttpClient listener(folder_.File("api.sock"));
  listener.Send("GET /v1/events?workload=a HTTP/1.1\r\nLast-Event-ID: 0\r\n\r\n");
  std::string bytes;
  const auto await = [&](const std::string& text) {
    for (int i = 0; i < 100 && bytes.find(text) == std::string::npos; ++i) {
      bytes += listener.Receive(milliseconds(100));
    }
    EXPECT_NE(bytes.find(text), std::string::npos) << bytes;
  };
  await("\"subject\":\"first\"");
  await("event: transfer\ndata: {");
  await("id: 1\n");
  client_->Post("/v1/transfers", Body(R"("ranges":[[0,0,0,0,64]],"id":"second")"));
  await("\"subject\":\"second\"");
  EXPECT_NE(bytes.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_EQ(client_->Get("/v1/events?workload=a", "Last-Event-ID: x\r\n").code(),
            "invalid_argument");
}

}  // namespace
}  // namespace gantry::api
