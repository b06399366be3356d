// Both sides of the tcp transport in one process, over real sockets on loopback: a server with
// buffers that tests add, and a transport with one peer. Used by one thread unless said otherwise.
#pragma once

#include <gtest/gtest.h>

#include <climits>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/transport/tcp/tcp_remote_buffer.h"
#include "sidecar/transport/tcp/tcp_server.h"
#include "sidecar/transport/tcp/tcp_transport.h"
#include "tests/fakes/counting_mapper.h"
#include "tests/fakes/fake_target_buffers.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/transport/driven_by_hand.h"

namespace gantry::transport {

// Takes tickets from the server itself, where a sidecar would ask over the peer API. Knobs are for
// before its use, but for `port`.
class FakeStreamOpener final : public TcpStreamOpener {
 public:
  // `security`: the server's.
  FakeStreamOpener(TcpServer* server, std::string session, ChannelSecurity* security = nullptr)
      : server_(server),
        session_(std::move(session)),
        security_(security),
        port_(server ? server->port() : 0) {}
  Result<Offer> Open(size_t streams, TimePoint) override {
    ++calls_;
    if (failure_) return Fail(*failure_);
    Offer offer;
    offer.host = "127.0.0.1";
    offer.port = port_;
    offer.tickets = std::vector<std::string>(streams, std::string(kTicketBytes, '0'));
    if (server_ != nullptr) {
      ASSIGN_OR_RETURN(offer.tickets,
                       server_->tickets().Issue(session_, streams, milliseconds(5000)));
    }
    offer.tls = security_ != nullptr;
    if (security_ != nullptr) {
      ASSIGN_OR_RETURN(offer.certificate_sha256, security_->CertificateSha256());
    }
    if (certificate_ && calls_ <= certificate_calls_) offer.certificate_sha256 = *certificate_;
    return offer;
  }
  // In its first `calls` offers.
  void set_certificate(std::string sha256, int calls = INT_MAX) {
    certificate_ = std::move(sha256);
    certificate_calls_ = calls;
  }
  void set_failure(Error error) { failure_ = std::move(error); }
  void set_port(uint16_t port) { port_ = port; }
  int calls() const { return calls_; }

 private:
  TcpServer* const server_;
  const std::string session_;
  ChannelSecurity* const security_;
  std::optional<std::string> certificate_;
  int certificate_calls_ = 0;
  std::atomic<uint16_t> port_;
  std::atomic<int> calls_{0};
  std::optional<Error> failure_;
};

struct TcpWorldOptions {
  TcpOptions tcp;
  TcpServerOptions server;
  ChannelSecurity* server_security = nullptr;
  ChannelSecurity* client_security = nullptr;
  StagingHalf* server_staging = nullptr;
};

class TcpWorld {
 public:
  explicit TcpWorld(TcpWorldOptions options = {}) {
    server_ = *TcpServer::Create(options.server, "127.0.0.1", 0, *server_loops_, helpers_, buffers_,
                                 options.server_security, options.server_staging);
    transport_ = std::make_unique<TcpTransport>(options.tcp, *loops_, helpers_,
                                                options.client_security, [this] { waker_.Wake(); });
    opener_ = std::make_shared<FakeStreamOpener>(server_.get(), "session", options.server_security);
    peer_ = transport_->AddPeer("b", opener_);
  }
  ~TcpWorld() {
    peer_.reset();
    transport_.reset();
    server_.reset();
  }

  // The arena as one buffer of the server's side, in two pieces.
  RemoteAllocation Remote(const TestArena& arena, const std::string& id = "buffer",
                          uint64_t generation = 1) {
    const uint64_t cut = arena.size() / 3;
    FakeTargetBuffers::Entry entry =
        BufferOn({AllocationOf(mapper_, arena)}, {{0, 0, cut}, {0, cut, arena.size() - cut}});
    entry.generation = generation;
    buffers_.Put(id, std::move(entry));
    return Named(id, generation, arena.size());
  }
  RemoteAllocation Named(const std::string& id, uint64_t generation, uint64_t length) {
    return {nullptr, std::make_shared<TcpRemoteBuffer>(peer_, id, generation, length)};
  }
  std::shared_ptr<const memory::MappedAllocation> Local(const TestArena& arena) {
    return AllocationOf(mapper_, arena);
  }

  // Polls until the operation is finished; false after `time`.
  bool Finish(const Operation& operation, milliseconds time = milliseconds(20'000)) {
    return PollUntilFinished(*transport_, operation, waker_, time);
  }
  // Without a stream nothing would be issued that could hang.
  void OpenStreams() {
    const TestArena arena(4096);
    auto operation = transport_->Start(
        PlanOf(wire::Operation::kRead, Local(arena), Remote(arena, "first"), 0, 0, 1), 0, 1);
    EXPECT_TRUE(Finish(*operation));
  }
  // The target's threads stand still, as when its process is stopped.
  void HoldServer(const std::shared_future<void>& until) {
    for (size_t i = 0; i < server_loops_->size(); ++i) {
      std::promise<void> reached;
      server_loops_->at(i).Post([until, &reached] {
        reached.set_value();
        until.wait();
      });
      reached.get_future().wait();
    }
  }

  gantry::testing::TestWaker waker_;
  CountingMapper mapper_;
  FakeTargetBuffers buffers_;
  std::unique_ptr<IoLoops> server_loops_ = *IoLoops::Create(2);
  std::unique_ptr<IoLoops> loops_ = *IoLoops::Create(2);
  HelperThreads helpers_{4};
  std::unique_ptr<TcpServer> server_;
  std::unique_ptr<TcpTransport> transport_;
  std::shared_ptr<FakeStreamOpener> opener_;
  std::shared_ptr<TcpPeer> peer_;
};

}  // namespace gantry::transport
