// A real HTTP server that gives mailboxes, and the client's HTTP that uses them. By one thread.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "client/unix_http.h"
#include "lib/http/error_response.h"
#include "lib/http/http_server.h"
#include "tests/fakes/test_folder.h"

namespace gantry::client {

class MailboxRequestsTest : public ::testing::Test {
 protected:
  MailboxRequestsTest() {
    options_.unix_path = folder_.File("api.sock");
    options_.connection.input_spin = microseconds(60'000'000);
  }
  void TearDown() override { server_.reset(); }  // its handler uses what follows

  void Start() {
    auto server = http::HttpServer::Start(
        options_, [this](const http::Request& request) { return Answer(request); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  // "?n": as many bytes more.
  http::Response Answer(const http::Request& request) {
    if (request.rehearsed) {
      rehearsed_ += request.by_mailbox ? 1 : 0;
      rehearsed_otherwise_ += request.by_mailbox ? 0 : 1;
    } else {
      (request.by_mailbox ? by_mailbox_ : by_socket_) += 1;
    }
    http::Response response;
    response.content_type = "application/json";
    if (request.path == "/v1/mailbox") return Mail(request, std::move(response));
    if (request.path == "/slow") std::this_thread::sleep_for(delay_.load());
    response.body = request.body;
    if (request.query->contains("n")) {
      response.body.append(std::stoul(request.query->find("n")->second), 'n');
    }
    response.may_rehearse = request.path == "/rehearsed";
    return response;
  }
  http::Response Mail(const http::Request& request, http::Response response) {
    ++asked_;
    if (!gives_) {
      response.status = 404;
      return response;
    }
    const Status opened = request.open_mailbox();
    if (!opened) return http::ErrorResponse(opened.error());
    response.status = 201;
    response.body = R"({"version":1,"message_bytes_max":8000})";
    return response;
  }

  static Result<HttpReply> Post(UnixHttp& http, std::string_view body,
                                std::string_view target = "/echo",
                                milliseconds timeout = milliseconds(10'000)) {
    return http.Send({.method = "POST", .target = target, .body = body, .timeout = timeout});
  }
  static void Echo(UnixHttp& http, const std::string& body) {
    const auto reply = Post(http, body);
    ASSERT_TRUE(reply) << reply.error().message;
    ASSERT_EQ(reply->body, body);
  }
  void OpenMailbox(UnixHttp& http) {
    for (unsigned i = 0; i < UnixHttp::kMailboxAfter; ++i) Echo(http, "before");
    EXPECT_EQ(by_mailbox_, 0U);
    Echo(http, "first");
  }

  gantry::testing::TestFolder folder_;
  http::HttpServerOptions options_;
  std::atomic<bool> gives_ = true;
  std::atomic<milliseconds> delay_{milliseconds(20)};
  std::atomic<size_t> asked_ = 0, by_mailbox_ = 0, by_socket_ = 0, rehearsed_ = 0,
                      rehearsed_otherwise_ = 0;
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace gantry::client
