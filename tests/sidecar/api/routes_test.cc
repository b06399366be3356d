#include "sidecar/api/routes.h"

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "sidecar/api/openapi_text.h"
#include "tests/sidecar/api/api_fixture.h"

namespace gantry::api {
namespace {

using nlohmann::json;

class RoutesTest : public ApiFixture {};

TEST_F(RoutesTest, UnknownPathsAndMethods) {
  for (const char* path :
       {"/", "/v1", "/v1/", "/v1/transfer", "/v1/transfers/", "/v1/transfers/a/b",
        "/v1/transfers/a%2Fb", "/v1/buffers:", "/v1/buffers:destroy", "//v1/info", "/v1/info/",
        "/v2/info", "/v1/../healthz"}) {
    const http::RawResponse response = client_->Get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(response.code(), "not_found") << path;
  }
  const http::RawResponse response = client_->Request("PATCH", "/v1/workloads/a");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.code(), "method_not_allowed");
  EXPECT_EQ(response.headers.at("allow"), "PUT, GET, DELETE");
  EXPECT_EQ(client_->Request("OPTIONS", "/v1/info").headers.at("allow"), "GET");
  EXPECT_EQ(client_->Request("TRACE", "/v1/transfers").status, 405);
  EXPECT_EQ(client_->Get("/v1/info?x=1").field(), "?x");
}

TEST_F(RoutesTest, TellsAboutItself) {
  const json info = json::parse(client_->Get("/v1/info").body);
  EXPECT_EQ(info["version"], "1.2.3");
  EXPECT_EQ(info["generation"], "0000000000001234");
  EXPECT_EQ(info["limits"]["buffers_max"], 100);
  json status = json::parse(client_->Get("/v1/status").body);
  EXPECT_TRUE(status["ready"].get<bool>());
  EXPECT_EQ(status["workers"][0]["state"], "ready");
  EXPECT_EQ(status["totals"]["buffers"], 0);
  EXPECT_NE(client_->Get("/metrics").body.find("# TYPE"), std::string::npos);
  EXPECT_EQ(client_->Get("/openapi.yaml").body, OpenApiText());
  EXPECT_EQ(client_->Get("/readyz").body, "ready\n");
  ready_ = false;
  EXPECT_EQ(client_->Get("/readyz").status, 503);
  EXPECT_EQ(client_->Get("/healthz").status, 200);
  alive_ = false;
  EXPECT_EQ(client_->Get("/healthz").status, 500);
  status = json::parse(client_->Get("/v1/status").body);
  EXPECT_EQ(status["not_ready_because"], "the sidecar is stopping");
}

TEST_F(RoutesTest, PeersAreNamedAndForgotten) {
  const std::string body = R"({"address":"unix:/node/b.sock"})";
  EXPECT_EQ(client_->Put("/v1/peers/b", body).status, 201);
  EXPECT_EQ(client_->Put("/v1/peers/b", body).status, 200);
  const json peer = json::parse(client_->Get("/v1/peers/b").body);
  EXPECT_EQ(peer["state"], "up");
  EXPECT_EQ(peer["path"], "shm");
  EXPECT_EQ(json::parse(client_->Get("/v1/peers").body)["peers"].size(), 1u);
  EXPECT_EQ(client_->Request("DELETE", "/v1/peers/b").status, 204);
  EXPECT_EQ(client_->Get("/v1/peers/b").code(), "not_found");
  EXPECT_EQ(client_->Put("/v1/peers/b", "{}").field(), "/address");
  EXPECT_EQ(client_->Put("/v1/peers/a%40b", body).field(), "/name");
}

TEST_F(RoutesTest, NamingAPeerWaitsForAsLongAsIsAsked) {
  const std::string body = R"({"address":"unix:/node/b.sock"})";
  EXPECT_EQ(client_->Put("/v1/peers/b?wait_ms=0", body).status, 201);
  EXPECT_FALSE(peers_.has_waited());
  EXPECT_EQ(client_->Put("/v1/peers/b?wait_ms=60000", body).status, 200);
  EXPECT_TRUE(peers_.has_waited());
  EXPECT_EQ(client_->Put("/v1/peers/b?wait_ms=0", body).status, 200);
  EXPECT_FALSE(peers_.has_waited());
  EXPECT_EQ(client_->Put("/v1/peers/b", body).status, 200);
  EXPECT_TRUE(peers_.has_waited());
  EXPECT_EQ(client_->Put("/v1/peers/b?wait_ms=-1", body).field(), "?wait_ms");
}

// The lines of docs/rest_api.yaml that say which paths there are, and the methods of each.
std::set<std::string> DocumentedOperations() {
  std::set<std::string> operations;
  std::istringstream lines{std::string(OpenApiText())};
  std::string path;
  bool in_paths = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ' && line[0] != '-') in_paths = line == "paths:";
    if (!in_paths) continue;
    if (line.starts_with("  /")) path = line.substr(2, line.size() - 3);
    for (const char* method : {"get", "put", "post", "delete", "patch", "head"}) {
      if (line != "    " + std::string(method) + ":") continue;
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(c));
      operations.insert(upper + " " + path);
    }
  }
  return operations;
}

TEST(RoutesDocumentTest, EveryRouteIsDocumentedAndEveryDocumentedOneExists) {
  std::set<std::string> routes;
  for (const Route& route : Routes()) {
    routes.insert(std::string(route.method) + " " + std::string(route.pattern));
  }
  EXPECT_EQ(routes.size(), Routes().size());
  EXPECT_EQ(routes, DocumentedOperations());
}

TEST(RoutesDocumentTest, EveryErrorCodeIsDocumented) {
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const std::string code(InfoOf(static_cast<ErrorCode>(i)).name);
    EXPECT_NE(OpenApiText().find(code), std::string_view::npos) << code;
  }
}

}  // namespace
}  // namespace gantry::api
