// The whole REST API over a real registry and engine, with an in-process copy pool and peers that a
// test writes. Used by one thread at a time.
#pragma once

#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "lib/http/http_server.h"
#include "sidecar/api/routes.h"
#include "tests/fakes/engine_fixture.h"
#include "tests/lib/http/server_fixture.h"

namespace gantry::api {

class FakePeerControl final : public engine::PeerControl {
 public:
  Result<engine::PeerInfo> Put(std::string_view name, std::string_view address,
                               TimePoint deadline) override {
    has_waited_ = deadline > Clock::now();
    engine::PeerInfo& peer = peers_[std::string(name)];
    peer.name = name;
    peer.address = address;
    peer.state = engine::PeerState::kUp;
    peer.generation = 0xabc;
    peer.path = wire::Path::kShm;
    return peer;
  }
  Result<engine::PeerInfo> Get(std::string_view name) const override {
    const auto found = peers_.find(name);
    if (found != peers_.end()) return found->second;
    return Fail(ErrorCode::kNotFound, "there is no peer '" + std::string(name) + "'");
  }
  std::vector<engine::PeerInfo> List() const override {
    std::vector<engine::PeerInfo> list;
    for (const auto& [name, peer] : peers_) list.push_back(peer);
    return list;
  }
  Status Remove(std::string_view name, TimePoint) override {
    RETURN_IF_ERROR(Get(name));
    peers_.erase(peers_.find(name));
    return {};
  }

  // Whether the last Put was given time.
  bool has_waited() const { return has_waited_; }

 private:
  std::atomic<bool> has_waited_{false};
  std::map<std::string, engine::PeerInfo, std::less<>> peers_;
};

class ApiFixture : public ::gantry::testing::EngineFixture {
 protected:
  void SetUp() override {
    EngineFixture::SetUp();
    dependencies_ = std::make_unique<ApiDependencies>(
        ApiDependencies{workloads_, registry_, *engine_, events_, metrics_, waits_, &peers_,
                        [this] { return status_; },
                        [this]() -> Status {
                          if (ready_) return {};
                          return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
                        }});
    dependencies_->liveness = [this]() -> Status {
      if (alive_) return {};
      return Fail(ErrorCode::kInternal, "it stands still");
    };
    status_.version = "1.2.3";
    status_.name = "here";
    status_.generation = 0x1234;
    status_.handoff_socket = "/run/handoff.sock";
    status_.workers = {{0, 41, "ready", "", "no driver", false, 0, 0}};
    status_.limits = {{"buffers_max", 100}};
    http::HttpServerOptions options;
    options.unix_path = folder_.File("api.sock");
    options.tcp_address = "127.0.0.1:0";
    auto server = http::HttpServer::Start(options, MakeApi(*dependencies_));
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    client_ = std::make_unique<http::RawHttpClient>(options.unix_path);
    tcp_ = std::make_unique<http::RawHttpClient>(server_->tcp_port());
  }
  void TearDown() override {
    events_.Close();
    server_.reset();
  }

  // Registers the workload of this process, and returns its lease token.
  std::string Enlist(const std::string& name) {
    const http::RawResponse response = client_->Put("/v1/workloads/" + name, "{}");
    EXPECT_EQ(response.status, 201) << response.body;
    generations_[name] = workloads_.Get(name)->generation;
    return response.Text("lease_token");
  }
  // A buffer over a whole arena, in blocks of 4 KiB.
  void AddBuffer(const std::string& workload, const std::string& name,
                 const ::gantry::testing::TestArena& arena) {
    const wire::BlockLayout layout{4096, 4096, arena.size() / 4096};
    auto buffers = Register(workload, {&arena}, {{name, {{0, 0, arena.size()}}, layout}});
    ASSERT_TRUE(buffers) << buffers.error().message;
  }
  static std::string Bearer(const std::string& token) {
    return "Authorization: Bearer " + token + "\r\n";
  }
  static constexpr const char* kJsonType = "Content-Type: application/json\r\n";

  gantry::testing::TestFolder folder_;
  AskedWaits waits_{96};
  FakePeerControl peers_;
  StatusInfo status_;
  bool ready_ = true;
  bool alive_ = true;
  std::unique_ptr<ApiDependencies> dependencies_;
  std::unique_ptr<http::HttpServer> server_;
  std::unique_ptr<http::RawHttpClient> client_;  // on the Unix socket
  std::unique_ptr<http::RawHttpClient> tcp_;
};

}  // namespace gantry::api
