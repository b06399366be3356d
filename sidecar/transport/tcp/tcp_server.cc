#include "sidecar/transport/tcp/tcp_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/transport/tcp/channel/tcp_socket.h"
#include "sidecar/transport/tcp/target_stream.h"

namespace gantry::transport {
namespace {

constexpr int kAcceptsPerTurn = 64;

}  // namespace

// Lives on the first loop; hands connections to all of them in turn.
class TcpServer::Listener final : public IoHandler {
 public:
  Listener(UniqueFd socket, std::shared_ptr<TargetHub> hub, IoLoops& loops,
           ChannelSecurity* security)
      : socket_(std::move(socket)), hub_(std::move(hub)), loops_(loops), security_(security) {}

  void Start() {
    if (auto added = loops_.at(0).Add(socket_.get(), EPOLLIN, self_.lock()); !added) {
      log::Error("the tcp listener could not start", {{"error", added.error()}});
    }
  }
  void SetSelf(const std::shared_ptr<Listener>& self) { self_ = self; }
  void Stop() { loops_.at(0).Remove(socket_.get()); }

  void OnReady(uint32_t) override {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      auto accepted = AcceptTcp(socket_.get());
      if (!accepted) return Pause(accepted.error());
      if (!accepted->socket.valid()) return;
      Serve(*std::move(accepted));
    }
  }
  void OnTick(TimePoint) override {
    if (!paused_) return;
    paused_ = false;
    loops_.at(0).Change(socket_.get(), EPOLLIN);
  }

 private:
  // Out of descriptors: without a pause the loop would spin.
  void Pause(const Error& error) {
    log::Warning("a tcp connection could not be accepted", {{"error", error}});
    paused_ = true;
    loops_.at(0).Change(socket_.get(), 0);
  }
  void Serve(AcceptedSocket accepted) {
    std::unique_ptr<SocketChannel> channel;
    if (security_ == nullptr) {
      channel = MakePlainChannel(std::move(accepted.socket));
    } else {
      auto secured = security_->Accept(std::move(accepted.socket));
      if (!secured) return hub_->LogEnd(accepted.address, true, secured.error());
      channel = *std::move(secured);
    }
    IoLoop& loop = loops_.Next();
    auto stream = std::make_shared<TargetStream>(hub_, loop, std::move(channel), accepted.address);
    if (hub_->AddUnauthenticated(stream)) loop.Post([stream] { stream->Start(); });
  }

  const UniqueFd socket_;
  const std::shared_ptr<TargetHub> hub_;
  IoLoops& loops_;
  ChannelSecurity* const security_;
  std::weak_ptr<Listener> self_;
  bool paused_ = false;
};

TcpServer::TcpServer(std::shared_ptr<TargetHub> hub, IoLoops& loops)
    : hub_(std::move(hub)), loops_(loops) {}

Result<std::unique_ptr<TcpServer>> TcpServer::Create(TcpServerOptions options,
                                                     const std::string& host, uint16_t port,
                                                     IoLoops& loops, HelperThreads& helpers,
                                                     TargetBuffers& buffers,
                                                     ChannelSecurity* security,
                                                     StagingHalf* staging) {
  ASSIGN_OR_RETURN(BoundSocket bound, ListenTcp(host, port));
  auto hub = std::make_shared<TargetHub>(options, buffers, helpers, staging);
  auto server = std::unique_ptr<TcpServer>(new TcpServer(hub, loops));
  server->port_ = bound.port;
  server->listener_ = std::make_shared<Listener>(std::move(bound.socket), hub, loops, security);
  server->listener_->SetSelf(server->listener_);
  loops.at(0).RunAndWait([&] { server->listener_->Start(); });
  return server;
}

TcpServer::~TcpServer() {
  loops_.at(0).RunAndWait([this] { listener_->Stop(); });
  hub_->End("", TimePoint::max());
}

}  // namespace gantry::transport
