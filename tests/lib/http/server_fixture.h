// A server over a Unix socket and TCP in a folder of its own, with the handler that a test gives.
// Used by one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "lib/http/http_server.h"
#include "tests/fakes/test_folder.h"
#include "tests/lib/http/raw_http_client.h"

namespace gantry::http {

class ServerFixture : public ::testing::Test {
 protected:
  void Start(Handler handler) {
    options_.unix_path = folder_.File("api.sock");
    options_.tcp_address = "127.0.0.1:0";
    auto server = HttpServer::Start(options_, std::move(handler));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  RawHttpClient Connect() { return RawHttpClient(options_.unix_path); }
  RawHttpClient ConnectTcp() { return RawHttpClient(server_->tcp_port()); }

  static Response Plain(std::string body) {
    Response response;
    response.content_type = "text/plain";
    response.body = std::move(body);
    return response;
  }

  gantry::testing::TestFolder folder_;
  HttpServerOptions options_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace gantry::http
