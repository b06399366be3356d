// /v1/views, and transfers that name one.
#include <nlohmann/json.hpp>

#include "tests/sidecar/api/api_fixture.h"

namespace gantry::api {
namespace {

using ::gantry::testing::TestArena;
using nlohmann::json;

constexpr size_t kViewedBytes = 64 * 4096;

class ViewEndpointsTest : public ApiFixture {
 protected:
  void SetUp() override {
    ApiFixture::SetUp();
    token_ = Enlist("a");
    Enlist("b");
    for (const char* name : {"k.0", "k.1", "v.0"}) {
      AddBuffer("a", name, arena_a_);
      AddBuffer("b", name, arena_b_);
    }
  }
  http::RawResponse Make(const std::string& members) {
    return client_->Post("/v1/views", R"({"workload":"a","remote_workload":"b",)" + members + "}");
  }
  http::RawResponse Move(const std::string& view, const std::string& members) {
    return client_->Post("/v1/transfers?wait_ms=5000",
                         R"({"workload":"a","op":"read","view":")" + view + "\"," + members + "}");
  }
  json ViewsOf(const std::string& query) {
    return json::parse(client_->Get("/v1/views?" + query).body);
  }

  TestArena arena_a_{kViewedBytes, 1};
  TestArena arena_b_{kViewedBytes, 2};
  std::string token_;
};

TEST_F(ViewEndpointsTest, AreMadeOnceAndFound) {
  const http::RawResponse made = Make(R"("id":"one","pairs":["k.*"])");
  ASSERT_EQ(made.status, 201) << made.body;
  const json view = json::parse(made.body);
  EXPECT_EQ(view["pair_count"], 2);
  EXPECT_EQ(view["bytes_per_block"], 8192);
  EXPECT_EQ(view["peer"], "");
  EXPECT_EQ(view["pairs"].size(), 2u);
  EXPECT_EQ(view["warnings"], json::array());
  EXPECT_EQ(Make(R"("id":"one","pairs":["k.*"])").status, 200);
  EXPECT_EQ(Make(R"("id":"one","pairs":["k.0"])").code(), "conflict");
  EXPECT_EQ(client_->Get("/v1/views/one?workload=a").body, made.body);
  EXPECT_EQ(client_->Get("/v1/views/one?workload=b").status, 404);
  EXPECT_EQ(client_->Get("/v1/views/one").field(), "?workload");
  EXPECT_EQ(client_->Request("DELETE", "/v1/views/one?workload=a").status, 204);
  EXPECT_EQ(client_->Request("DELETE", "/v1/views/one?workload=a").status, 404);
}

TEST_F(ViewEndpointsTest, AreListedInPages) {
  for (const char* id : {"3", "1", "2"}) {
    ASSERT_EQ(Make(std::string(R"("pairs":["k.0"],"id":")") + id + "\"").status, 201);
  }
  json page = ViewsOf("workload=a&limit=2");
  EXPECT_EQ(page["views"][0]["id"], "1");
  EXPECT_EQ(page["views"][1]["id"], "2");
  EXPECT_FALSE(page["views"][0].contains("pairs"));
  page = ViewsOf("limit=2&cursor=" + page["next_cursor"].get<std::string>());
  ASSERT_EQ(page["views"].size(), 1u);
  EXPECT_EQ(page["views"][0]["id"], "3");
  EXPECT_FALSE(page.contains("next_cursor"));
  EXPECT_EQ(ViewsOf("workload=b")["views"], json::array());
}

TEST_F(ViewEndpointsTest, AreTheirWorkloadsAlone) {
  const std::string body = R"({"workload":"b","remote_workload":"a","pairs":"by_name"})";
  EXPECT_EQ(tcp_->Post("/v1/views", body, kJsonType + Bearer(token_)).code(), "permission_denied");
  EXPECT_EQ(tcp_->Post("/v1/views", body, kJsonType).code(), "unauthenticated");
  EXPECT_EQ(tcp_->Get("/v1/views?workload=b", Bearer(token_)).code(), "permission_denied");
  EXPECT_EQ(tcp_->Request("DELETE", "/v1/views/x?workload=b", Bearer(token_)).code(),
            "permission_denied");
}

TEST_F(ViewEndpointsTest, MoveBlocksBySlices) {
  ASSERT_EQ(Make(R"("id":"s","pairs":["k.0"],"slice":{"local":{"offset":0,"length":1024},)"
                 R"("remote":{"offset":3072,"length":1024}})")
                .status,
            201);
  const TestArena before(kViewedBytes, 1);
  const http::RawResponse moved = Move("s", R"("local_blocks":[2,5],"remote_blocks":[7,7])");
  ASSERT_EQ(moved.status, 200) << moved.body;
  EXPECT_EQ(json::parse(moved.body)["bytes_moved"], 2048);
  for (const size_t block : {2, 5}) {
    EXPECT_EQ(std::memcmp(arena_a_.data() + block * 4096, arena_b_.data() + 7 * 4096 + 3072, 1024),
              0);
    EXPECT_EQ(std::memcmp(arena_a_.data() + block * 4096 + 1024,
                          before.data() + block * 4096 + 1024, 4096),
              0);
  }
}

TEST_F(ViewEndpointsTest, BuffersThatShareMemoryCollide) {
  ASSERT_EQ(Make(R"("id":"all","pairs":"by_name")").status, 201);
  const http::RawResponse refused = Move("all", R"("local_blocks":[2],"remote_blocks":[7])");
  EXPECT_EQ(refused.code(), "overlap") << refused.body;
  EXPECT_EQ(refused.field(), "/local_blocks/0");
  EXPECT_EQ(Move("all", R"("local_blocks":[2],"remote_blocks":[7],"layers":[1,1])").status, 200);
}

TEST_F(ViewEndpointsTest, GoWithTheirWorkload) {
  ASSERT_EQ(Make(R"("id":"one","pairs":["k.0"])").status, 201);
  engine_->StopTransfersOf("a", generations_["a"], Error(ErrorCode::kCancelled, "it ended"));
  EXPECT_EQ(client_->Get("/v1/views/one?workload=a").status, 404);
  EXPECT_EQ(Move("one", R"("local_blocks":[2],"remote_blocks":[7])").field(), "/view");
}

}  // namespace
}  // namespace gantry::api
