// /v1/workloads and /v1/buffers: leases, who may do what, registration, resolving, suspending.
#include <nlohmann/json.hpp>

#include "tests/sidecar/api/api_fixture.h"

namespace gantry::api {
namespace {

using ::gantry::testing::TestArena;
using nlohmann::json;

class MemoryEndpointsTest : public ApiFixture {
 protected:
  std::string Registration(const std::string& workload, const std::string& name,
                           const std::string& more = "") {
    return R"({"workload":")" + workload + R"(","allocations":[{"kind":"host","fd_token":")" +
           Token(workload, arena_.Fd()) + R"(","size":65536}],"buffers":[{"name":")" + name +
           R"(","pieces":[{"allocation":0,"offset":4096,"length":8192},)" +
           R"({"allocation":0,"offset":0,"length":4096}])" + more + "}]}";
  }
  TestArena arena_{65536};
};

TEST_F(MemoryEndpointsTest, ALeaseIsTakenRenewedShownAndEnded) {
  http::RawResponse response = client_->Put("/v1/workloads/engine-0", R"({"engine_id":"e1"})");
  EXPECT_EQ(response.status, 201);
  const std::string token = response.Text("lease_token");
  const std::string generation = response.Text("generation");
  EXPECT_EQ(token.size(), 32u);
  EXPECT_EQ(response.Text("handoff_socket"), "/run/handoff.sock");
  response = client_->Put("/v1/workloads/engine-0", R"({"ttl_ms":60000})");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.Text("generation"), generation);
  EXPECT_EQ(json::parse(response.body)["ttl_ms"], 60000);
  response = client_->Put("/v1/workloads/engine-0", R"({"engine_id":"e2"})");
  EXPECT_EQ(response.status, 201);
  EXPECT_NE(response.Text("generation"), generation);
  response = client_->Get("/v1/workloads/engine-0");
  EXPECT_EQ(response.Text("engine_id"), "e2");
  EXPECT_EQ(response.body.find("lease_token"), std::string::npos);
  EXPECT_EQ(client_->Get("/v1/workloads").body.find("lease_token"), std::string::npos);
  EXPECT_EQ(client_->Request("DELETE", "/v1/workloads/engine-0").status, 204);
  EXPECT_EQ(client_->Get("/v1/workloads/engine-0").code(), "not_found");
  EXPECT_EQ(client_->Put("/v1/workloads/a%20b", "{}").field(), "/name");
  EXPECT_EQ(client_->Put("/v1/workloads/a", R"({"ttl_ms":9223372036854775807})").field(),
            "/ttl_ms");
}

TEST_F(MemoryEndpointsTest, ALeaseSaysWhetherDmaBufsAreWanted) {
  const auto wanted = [&] {
    const json said = json::parse(client_->Put("/v1/workloads/a", "{}").body)["wants_dma_bufs"];
    EXPECT_EQ(said, json::parse(client_->Get("/v1/workloads/a").body)["wants_dma_bufs"]);
    return said;
  };
  EXPECT_EQ(wanted(), false);
  status_.rdma_devices = {{"rxe0", "it takes none"}};
  EXPECT_EQ(wanted(), false);
  const json told = json::parse(client_->Get("/v1/status").body)["rdma_devices"];
  EXPECT_EQ(told, json::parse(R"([{"name":"rxe0","takes_dma_bufs":false,)"
                              R"("no_dma_buf_because":"it takes none"}])"));
  status_.rdma_devices.push_back({"mlx5_0", ""});
  EXPECT_EQ(wanted(), true);
}

TEST_F(MemoryEndpointsTest, OnTcpALeaseIsOnlyRenewed) {
  const std::string token = Enlist("a");
  const std::string type = kJsonType;
  EXPECT_EQ(tcp_->Put("/v1/workloads/b", "{}").code(), "unauthenticated");
  EXPECT_EQ(tcp_->Post("/v1/workloads/b", "{}", type + Bearer(token), "PUT").code(),
            "permission_denied");
  EXPECT_EQ(
      tcp_->Post("/v1/workloads/a", R"({"engine_id":"x"})", type + Bearer(token), "PUT").code(),
      "permission_denied");
  EXPECT_EQ(tcp_->Post("/v1/workloads/a", "{}", type + Bearer(token), "PUT").status, 200);
  EXPECT_EQ(tcp_->Post("/v1/workloads/a", "{}", type + Bearer(std::string(32, '0')), "PUT").code(),
            "unauthenticated");
  EXPECT_EQ(
      tcp_->Post("/v1/workloads/a", "{}", type + "Authorization: Basic eA==\r\n", "PUT").code(),
      "unauthenticated");
}

TEST_F(MemoryEndpointsTest, EveryEndpointOfAWorkloadAsksWhoCalls) {
  const std::string mine = Enlist("mine");
  const std::string other = Enlist("other");
  AddBuffer("mine", "k", arena_);
  const std::string id = registry_.ByName("mine", "k").value()->description().id;
  struct Call {
    std::string method, target, body;
  };
  const std::vector<Call> calls = {
      {"DELETE", "/v1/workloads/mine", ""},
      {"POST", "/v1/buffers", Registration("mine", "k2")},
      {"GET", "/v1/buffers?workload=mine", ""},
      {"GET", "/v1/buffers/" + id, ""},
      {"DELETE", "/v1/buffers/" + id, ""},
      {"POST", "/v1/buffers:resolve", R"({"workload":"mine","buffer":"k","offset":0,"length":1})"},
      {"POST", "/v1/buffers:suspend", R"({"workload":"mine"})"},
      {"POST", "/v1/buffers:resume", R"({"workload":"mine"})"},
      {"POST", "/v1/transfers",
       R"({"workload":"mine","op":"read","local":["k"],"remote":["k"],"ranges":[[0,0,0,4096,1]]})"},
      {"GET", "/v1/transfers?workload=mine", ""},
      {"GET", "/v1/transfers/t?workload=mine", ""},
      {"DELETE", "/v1/transfers/t?workload=mine", ""},
      {"POST", "/v1/completions:poll", R"({"workload":"mine","cursor":0})"},
      {"GET", "/v1/events?workload=mine", ""},
  };
  for (const Call& call : calls) {
    const auto ask = [&](const std::string& headers) {
      return tcp_->Post(call.target, call.body, kJsonType + headers, call.method);
    };
    EXPECT_EQ(ask("").code(), "unauthenticated") << call.target;
    EXPECT_EQ(ask(Bearer(other)).code(), "permission_denied") << call.method << call.target;
    EXPECT_EQ(ask(Bearer("x")).code(), "permission_denied") << call.target;
  }
  for (const char* target : {"/v1/status", "/v1/peers", "/v1/debug/buffers", "/v1/workloads",
                             "/metrics", "/openapi.yaml", "/v1/workloads/mine"}) {
    EXPECT_EQ(tcp_->Get(target).code(), "unauthenticated") << target;
    EXPECT_EQ(tcp_->Get(target, Bearer(other)).status, 200) << target;
    EXPECT_EQ(client_->Get(target).status, 200) << target;
  }
  for (const char* target : {"/v1/info", "/healthz", "/readyz"}) {
    EXPECT_EQ(tcp_->Get(target).status, 200) << target;
  }
  EXPECT_EQ(tcp_->Get("/v1/buffers", Bearer(mine)).code(), "permission_denied");
  EXPECT_EQ(tcp_->Get("/v1/buffers?workload=mine", Bearer(mine)).status, 200);
}

TEST_F(MemoryEndpointsTest, RegistersShowsAndUnregisters) {
  Enlist("a");
  const std::string body = Registration("a", "k",
                                        R"(,"layout":{"block_bytes":4096,)"
                                        R"("block_stride":4096,"blocks":3})");
  http::RawResponse response = client_->Post("/v1/buffers", body);
  ASSERT_EQ(response.status, 201) << response.body;
  const json buffer = json::parse(response.body)["buffers"][0];
  EXPECT_EQ(buffer["length"], 12288);
  EXPECT_EQ(buffer["state"], "active");
  EXPECT_EQ(buffer["access"], json::array({"remote_read"}));
  EXPECT_EQ(buffer["pieces"][0]["allocation_id"], buffer["pieces"][1]["allocation_id"]);
  EXPECT_EQ(buffer["layout"]["blocks"], 3);
  EXPECT_EQ(buffer["paths"].size(), static_cast<size_t>(wire::kPathCount));
  EXPECT_EQ(client_->Post("/v1/buffers", body).status, 200);
  const std::string id = buffer["id"];
  EXPECT_EQ(json::parse(client_->Get("/v1/buffers/" + id).body), buffer);
  response = client_->Request("DELETE", "/v1/buffers/" + id + "?drain_ms=100");
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(json::parse(response.body), json({{"id", id}, {"peers", json::array()}}));
  EXPECT_EQ(client_->Get("/v1/buffers/" + id).code(), "not_found");
}

// What a device keeps is told, and no reason for the buffer to stay.
TEST_F(MemoryEndpointsTest, ADeviceThatDoesNotLetGoIsToldAndTheBufferIsGone) {
  struct Nics final : memory::NicRegistrar {
    struct Kept final : memory::NicMemory {
      size_t chunks() const override { return 1; }
      Status Deregister() const override { return Fail(ErrorCode::kDeviceError, "nic0: busy"); }
    };
    memory::NicRegistration Register(const std::vector<memory::NicPiece>&,
                                     const wire::Access&) override {
      return std::make_shared<const Kept>();
    }
  } nics;
  registry_.SetNicRegistrar(&nics);
  Enlist("a");
  const http::RawResponse made = client_->Post("/v1/buffers", Registration("a", "k"));
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id = json::parse(made.body)["buffers"][0]["id"];
  const http::RawResponse suspended =
      client_->Post("/v1/buffers:suspend", R"({"workload":"a","buffers":["k"]})");
  EXPECT_EQ(suspended.code(), "device_error") << suspended.body;
  ASSERT_EQ(client_->Post("/v1/buffers:resume", R"({"workload":"a"})").status, 200);
  const http::RawResponse response =
      client_->Request("DELETE", "/v1/buffers/" + id + "?drain_ms=100");
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(response.code(), "device_error");
  const json problem = json::parse(response.body);
  EXPECT_NE(problem["detail"].get<std::string>().find("is deleted"), std::string::npos);
  EXPECT_NE(problem["detail"].get<std::string>().find("nic0: busy"), std::string::npos);
  EXPECT_FALSE(problem["hint"].get<std::string>().empty());
  EXPECT_EQ(problem["peers"], json::array());
  EXPECT_EQ(client_->Get("/v1/buffers/" + id).code(), "not_found");
  EXPECT_EQ(registry_.Totals().buffers, 0u);
}

TEST_F(MemoryEndpointsTest, RegistrationErrorsNameTheField) {
  Enlist("a");
  const auto refused = [&](const std::string& body) {
    const http::RawResponse response = client_->Post("/v1/buffers", body);
    return std::to_string(response.status) + " " + response.code() + " " + response.field();
  };
  json body = json::parse(Registration("a", "k"));
  body["buffers"][0]["pieces"][1]["length"] = 65537;
  EXPECT_EQ(refused(body.dump()).substr(0, 17), "400 out_of_range ");
  body = json::parse(Registration("a", "k"));
  body["allocations"][0]["size"] = 65537;
  EXPECT_EQ(refused(body.dump()).substr(0, 17), "422 fd_too_short ");
  body["workload"] = "nobody";
  EXPECT_EQ(refused(body.dump()).substr(0, 4), "404 ");
  EXPECT_EQ(refused(R"({"workload":"a"})"), "400 malformed_body /allocations");
  EXPECT_EQ(refused(R"({"workload":"a","allocations":[],"buffers":[]})"),
            "400 invalid_argument /buffers");
}

TEST_F(MemoryEndpointsTest, ListsGoOnAfterACursor) {
  Enlist("a");
  for (int i = 0; i < 5; ++i) AddBuffer("a", "k" + std::to_string(i), arena_);
  std::string cursor;
  size_t seen = 0;
  for (int page = 0; page < 3; ++page) {
    const json answer =
        json::parse(client_->Get("/v1/buffers?workload=a&limit=2&cursor=" + cursor).body);
    seen += answer["buffers"].size();
    cursor = answer.value("next_cursor", "");
    EXPECT_EQ(cursor.empty(), page == 2);
  }
  EXPECT_EQ(seen, 5u);
  EXPECT_EQ(client_->Get("/v1/buffers?limit=0").field(), "?limit");
  EXPECT_EQ(client_->Get("/v1/buffers?limit=1001").field(), "?limit");
  EXPECT_EQ(client_->Get("/v1/buffers?limit=-1").field(), "?limit");
}

TEST_F(MemoryEndpointsTest, ResolvesWithoutMoving) {
  Enlist("a");
  ASSERT_EQ(client_->Post("/v1/buffers", Registration("a", "k")).status, 201);
  const http::RawResponse response = client_->Post(
      "/v1/buffers:resolve", R"({"workload":"a","buffer":"k","offset":8000,"length":1000})");
  const json extents = json::parse(response.body)["extents"];
  ASSERT_EQ(extents.size(), 2u);
  EXPECT_EQ(extents[0]["offset"], 4096 + 8000);
  EXPECT_EQ(extents[0]["length"], 192);
  EXPECT_EQ(extents[1]["offset"], 0);
  EXPECT_EQ(extents[1]["length"], 808);
  EXPECT_EQ(client_
                ->Post("/v1/buffers:resolve",
                       R"({"workload":"a","buffer":"k","offset":9223372036854775807,"length":1})")
                .code(),
            "out_of_range");
}

TEST_F(MemoryEndpointsTest, SuspendsAndResumes) {
  Enlist("a");
  AddBuffer("a", "k", arena_);
  AddBuffer("a", "v", arena_);
  http::RawResponse response =
      client_->Post("/v1/buffers:suspend", R"({"workload":"a","buffers":["k"]})");
  EXPECT_EQ(response.body, R"({"suspended":["k"],"peers":[]})");
  EXPECT_EQ(client_->Get("/v1/buffers?workload=a").Text("state"), "suspended");
  response = client_->Post("/v1/buffers:suspend", R"({"workload":"a"})");
  EXPECT_EQ(json::parse(response.body)["suspended"].size(), 2u);
  EXPECT_EQ(pool_.mapping_count(), 0u);
  response = client_->Post("/v1/buffers:resume", R"({"workload":"a"})");
  EXPECT_EQ(json::parse(response.body)["resumed"].size(), 2u);
  EXPECT_GT(pool_.mapping_count(), 0u);
  EXPECT_EQ(client_->Post("/v1/buffers:resume", R"({"workload":"a","buffers":["k","x"]})").field(),
            "/buffers/1");
}

}  // namespace
}  // namespace gantry::api
