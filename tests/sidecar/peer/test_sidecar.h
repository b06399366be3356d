// A sidecar as far as its peers see it: workload, registry, peer server, peer directory, over a
// mapper that counts; real sockets and real memfds. Used by one thread unless a test says
// otherwise.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/random_id.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/server/peer_server.h"
#include "sidecar/registry/buffer_registry.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/test_arena.h"
#include "tests/fakes/test_folder.h"

namespace gantry::testing {

inline TimePoint In(int time_ms) { return Clock::now() + milliseconds(time_ms); }

// A node's socket directory.
class NodeDir : public TestFolder {
 public:
  std::string AddressOf(const std::string& name) const {
    return "unix:" + File(name + ".peer.sock");
  }
};

template <typename Condition>
bool Eventually(int time_ms, const Condition& condition) {
  const TimePoint deadline = In(time_ms);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

struct Stopped {
  wire::BufferReference reference;
  Error why;
};

class TestSidecar {
 public:
  TestSidecar(const NodeDir& node, const std::string& name, memory::MemoryMapper& mapper)
      : TestSidecar(node.path(), name, mapper) {}
  TestSidecar(const std::string& node_dir, const std::string& name, memory::MemoryMapper& mapper)
      : mapper_(mapper),
        workloads_({}, [](const auto&, auto) {}),
        registry_({}, mapper, workloads_) {
    server_options_.self = {name, RandomGeneration(), *peer::ReadNodeId(), "test"};
    server_options_.node_dir = node_dir;
    server_options_.heartbeat = milliseconds(100);
    server_options_.events = &events_;
    directory_options_.self = server_options_.self;
    auto workload = workloads_.Put("engine", "id", ::getuid(), std::nullopt);
    EXPECT_TRUE(workload);
    workload_generation_ = workload->generation;
    MakeDirectory();
  }
  ~TestSidecar() {
    directory_.reset();
    (void)registry_.RemoveAll("engine", 0, In(2'000));
    registry_.SetRevocationSink(nullptr);
  }

  void StartServer() {
    auto server = peer::PeerServer::Start(server_options_, registry_);
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    registry_.SetRevocationSink(server_.get());
  }
  void StopServer() {
    registry_.SetRevocationSink(nullptr);
    server_.reset();
  }

  // Over TCP on loopback, beside the node directory; with what `security` says on both sides.
  // Forgets every peer.
  void UseTcp(peer::PeerSecurityOptions security) {
    auto loaded = peer::PeerSecurity::Load(std::move(security));
    ASSERT_TRUE(loaded) << loaded.error().message;
    server_options_.listen = "127.0.0.1:0";
    server_options_.security = *loaded;
    directory_options_.security = *loaded;
    MakeDirectory();
  }

  // Forgets every peer.
  void UseTransport(transport::TcpTransport* tcp) {
    directory_options_.tcp = tcp;
    MakeDirectory();
  }

  // From the next server on.
  void OfferPaths(std::vector<wire::PathReport> paths) {
    server_options_.paths = [paths = std::move(paths)] { return paths; };
  }

  // Forgets every peer.
  void DoWithoutRdma(std::string why) {
    directory_options_.why_no_rdma = std::move(why);
    MakeDirectory();
  }

  // Forgets every peer.
  void SetSilenceMax(milliseconds time) {
    directory_options_.silence_max = time;
    MakeDirectory();
  }

  // Forgets every peer.
  void SetFdsMax(size_t fds_max) {
    directory_options_.fds_max = fds_max;
    MakeDirectory();
  }

  // Beside noting them. Before the first peer.
  void StopTransfersWith(peer::PeerDirectory::StopTransfers stop) { stop_ = std::move(stop); }

  struct View {
    std::string name;
    std::vector<wire::Piece> pieces;
    wire::Access access{true, true};
    std::optional<wire::BlockLayout> layout = std::nullopt;
  };
  std::vector<std::shared_ptr<registry::Buffer>> Register(
      const std::vector<const TestArena*>& arenas, const std::vector<View>& views) {
    wire::RegistrationRequest request;
    request.workload = "engine";
    for (const TestArena* arena : arenas) {
      std::vector<UniqueFd> fds;
      fds.push_back(arena->Fd());
      auto tokens = workloads_.KeepFds("engine", workload_generation_, std::move(fds));
      EXPECT_TRUE(tokens);
      request.allocations.push_back({wire::MemoryKind::kHost, tokens->front(), arena->size()});
    }
    for (const View& view : views) {
      request.buffers.push_back({view.name, view.pieces, view.access, view.layout});
    }
    auto buffers = registry_.Register(request);
    for (const wire::AllocationSpec& allocation : request.allocations) {
      EXPECT_TRUE(workloads_.ReleaseFds("engine", workload_generation_, {allocation.fd_token}));
    }
    EXPECT_TRUE(buffers) << buffers.error().message;
    return buffers ? *buffers : std::vector<std::shared_ptr<registry::Buffer>>{};
  }
  // One buffer over the whole of one arena.
  std::shared_ptr<registry::Buffer> Register(const TestArena& arena, const std::string& name,
                                             wire::Access access = {true, true}) {
    return Register({&arena}, {{name, {{0, 0, arena.size()}}, access}}).front();
  }

  // The peer `name` is up.
  void ConnectTo(const NodeDir& node, const std::string& name) {
    ConnectToAddress(node.AddressOf(name), name);
  }
  void ConnectToAddress(const std::string& address, const std::string& name) {
    const auto info = directory_->Put(name, address, In(5'000));
    ASSERT_TRUE(info) << info.error().message;
    ASSERT_EQ(info->state, engine::PeerState::kUp) << info->error.value_or(Error()).message;
  }
  // What becomes of a peer that may not come up: it is waited for, since a handshake has no speed.
  enum class Until { kUp, kRefused };
  engine::PeerInfo Try(const std::string& address, const std::string& name,
                       Until until = Until::kRefused) {
    const auto put = directory_->Put(name, address, In(0));
    EXPECT_TRUE(put) << put.error().message;
    engine::PeerInfo info;
    EXPECT_TRUE(Eventually(20'000, [&] {
      info = directory_->Get(name).value_or(engine::PeerInfo{});
      if (info.state == engine::PeerState::kUp) return true;
      return until == Until::kRefused && info.error &&
             info.error->code != ErrorCode::kDeadlineExceeded;
    }));
    return info;
  }
  Result<std::vector<std::shared_ptr<const engine::RemoteBuffer>>> Acquire(
      const std::string& peer, const std::vector<std::string>& names, uint64_t generation = 0,
      int time_ms = 5'000, engine::RemoteUse use = engine::RemoteUse::kMove) {
    std::vector<wire::BufferReference> references;
    for (const std::string& name : names) references.push_back({peer, "engine", name, generation});
    return directory_->Acquire(peer, references, use, In(time_ms));
  }
  engine::PeerState StateOf(const std::string& peer) const { return directory_->Get(peer)->state; }
  // True when the log has such an event about `subject`.
  bool HasEvent(engine::EventType type, const std::string& subject) const {
    for (const engine::Event& event : events_.Poll({"engine"}, 0, 10'000, Clock::now()).events) {
      if (event.type == type && event.subject == subject) return true;
    }
    return false;
  }
  std::vector<Stopped> stopped() const {
    const MutexLock lock(mutex_);
    return stopped_;
  }

  registry::BufferRegistry& registry() { return registry_; }
  peer::PeerServer& server() { return *server_; }
  peer::PeerDirectory& directory() { return *directory_; }
  peer::PeerServerOptions& server_options() { return server_options_; }
  uint64_t generation() const { return server_options_.self.generation; }
  registry::WorkloadTable& workloads() { return workloads_; }
  uint64_t workload_generation() const { return workload_generation_; }  // of "engine"

 private:
  void MakeDirectory() {
    directory_ = std::make_unique<peer::PeerDirectory>(
        directory_options_, mapper_, events_, [this](const auto& buffer, Error why) {
          if (stop_) stop_(buffer, why);
          const MutexLock lock(mutex_);
          stopped_.push_back({buffer->reference, std::move(why)});
        });
  }

  memory::MemoryMapper& mapper_;
  peer::PeerServerOptions server_options_;
  peer::PeerDirectoryOptions directory_options_;
  registry::WorkloadTable workloads_;
  registry::BufferRegistry registry_;
  uint64_t workload_generation_ = 0;
  engine::EventLog events_{10'000};
  peer::PeerDirectory::StopTransfers stop_;
  mutable Mutex mutex_;
  std::vector<Stopped> stopped_ GUARDED_BY(mutex_);
  std::unique_ptr<peer::PeerServer> server_;
  std::unique_ptr<peer::PeerDirectory> directory_;
};

}  // namespace gantry::testing
