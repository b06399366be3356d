// A whole sidecar core over the in-process copy pool: workloads with arenas, the registry, the
// engine. Used by one thread unless a test says otherwise.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/copy/shm_transport.h"
#include "sidecar/transfer/transfer_engine.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::testing {

inline TimePoint In(milliseconds time) { return Clock::now() + time; }

class EngineFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 1 << 20;  // of each workload's, where a test wants no other

  explicit EngineFixture(engine::EngineOptions options = {}) : engine_options_(options) {}

  void SetUp() override {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    transports.push_back(std::make_unique<transport::ShmTransport>(copies_));
    engine_ = std::make_unique<engine::TransferEngine>(engine_options_, pool_, copies_.hints(),
                                                       std::move(transports), registry_, events_,
                                                       metrics_);
  }

  void AddWorkload(const std::string& name) {
    auto info = workloads_.Put(name, "engine", 1000, std::nullopt);
    ASSERT_TRUE(info) << info.error().message;
    generations_[name] = info->generation;
  }

  // Hands `fd` over and returns its token.
  std::string Token(const std::string& workload, UniqueFd fd) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    auto tokens = workloads_.KeepFds(workload, generations_[workload], std::move(fds));
    EXPECT_TRUE(tokens);
    return tokens ? tokens->front() : "";
  }

  struct View {
    std::string name;
    std::vector<wire::Piece> pieces;
    std::optional<wire::BlockLayout> layout;
    wire::Access access{true, true};
  };
  Result<std::vector<std::shared_ptr<registry::Buffer>>> Register(
      const std::string& workload, const std::vector<const TestArena*>& arenas,
      const std::vector<View>& views, bool read_only = false) {
    wire::RegistrationRequest request;
    request.workload = workload;
    for (const TestArena* arena : arenas) {
      request.allocations.push_back({wire::MemoryKind::kHost,
                                     Token(workload, read_only ? arena->ReadOnlyFd() : arena->Fd()),
                                     arena->size()});
    }
    for (const View& view : views) {
      request.buffers.push_back({view.name, view.pieces, view.access, view.layout});
    }
    return registry_.Register(request);
  }

  // A request for one transfer between buffers of two workloads of this sidecar.
  static wire::TransferRequest Between(const std::string& workload, const std::string& local,
                                       const std::string& remote_workload,
                                       const std::string& remote) {
    wire::TransferRequest request;
    request.workload = workload;
    request.local.push_back({"", "", local, 0});
    request.remote.push_back({"", remote_workload, remote, 0});
    return request;
  }
  static wire::TransferRequest WithRange(wire::TransferRequest request, uint64_t local_offset,
                                         uint64_t remote_offset, uint64_t length) {
    request.ranges.push_back({0, local_offset, 0, remote_offset, length});
    return request;
  }

  // All metrics but those of the process, which never stand still.
  std::string Counted() {
    const std::string text = metrics_.Text();
    return text.substr(0, text.find("# HELP process_"));
  }

  engine::EngineOptions engine_options_;
  worker::FakeCopyPool pool_;
  transport::CopyScheduler copies_{{}, pool_, pool_};
  registry::WorkloadTable workloads_{{}, [](const auto&, auto) {}};
  registry::BufferRegistry registry_{{}, pool_, workloads_};
  engine::EventLog events_{1024};
  metrics::Metrics metrics_{"test"};
  std::map<std::string, uint64_t> generations_;
  std::unique_ptr<engine::TransferEngine> engine_;
};

}  // namespace gantry::testing
