#include "sidecar/peer/server/tcp_peer_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/server_builder.h>

#include <utility>

#include "lib/base/log.h"
#include "lib/rpc/grpc_deadline.h"
#include "lib/rpc/grpc_log.h"
#include "lib/rpc/grpc_threads.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/grpc_status.h"

namespace gantry::peer {
namespace {

constexpr int kMetadataBytesMax = 16 << 10;
constexpr int kClientPingsMsMin = 500;

int Count(milliseconds time) { return static_cast<int>(time.count()); }

void SetLimits(const TcpPeerServer::Options& options, grpc::ResourceQuota* quota,
               grpc::ServerBuilder* builder) {
  quota->Resize(options.memory_bytes_max);
  LimitThreads(options.sessions_max, quota);
  builder->SetResourceQuota(*quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder->SetMaxReceiveMessageSize(wire::kPeerMessageBytesMax);
  builder->SetMaxSendMessageSize(wire::kPeerMessageBytesMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
}

// A cut link says nothing by itself: pings end the session of an initiator that vanished.
void SetKeepalive(milliseconds silence_max, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Count(silence_max / 2));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Count(silence_max / 2));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kClientPingsMsMin);
}

}  // namespace

void LimitThreads(size_t sessions_max, grpc::ResourceQuota* quota) {
  quota->SetMaxThreads(
      static_cast<int>(sessions_max + kCallThreadsMax + rpc::CallThreadsRefused()));
}

Result<std::unique_ptr<TcpPeerServer>> TcpPeerServer::Make(Options options, CountRefusal count,
                                                           v1::Peer::Service& service) {
  ASSIGN_OR_RETURN(HostPort listening, ParseHostPort(options.listen));
  RETURN_IF_ERROR(options.security->CheckListen(listening.host));
  std::unique_ptr<TcpPeerServer> tcp(new TcpPeerServer(std::move(options)));
  std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
  if (tcp->options_.security->has_tls()) {
    ASSIGN_OR_RETURN(tcp->tls_, ServerTls::Make(tcp->options_.security, std::move(count)));
    credentials = tcp->tls_->credentials();
  }
  grpc::ServerBuilder builder;
  SetLimits(tcp->options_, &tcp->quota_, &builder);
  SetKeepalive(tcp->options_.silence_max, &builder);
  // The health service has a port of its own.
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  rpc::BoundedListener::Options bounds;
  bounds.what = "the peer API over TCP";
  bounds.connections_max = tcp->options_.connections_max;
  bounds.needs_threads = true;
  auto listener = rpc::BoundedListener::Listen(std::move(bounds), &listening);
  if (!listener) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "the peer API cannot listen on " + tcp->options_.listen + ": " + listener.error().message,
        "choose an address of this host and a port that is free");
  }
  tcp->listener_ = *std::move(listener);
  tcp->listener_->AddTo(&builder, std::move(credentials));
  builder.RegisterService(&service);
  ASSIGN_OR_RETURN(tcp->server_,
                   rpc::StartServer("the peer API over TCP", rpc::kSyncServerThreads, &builder));
  tcp->listening_ = listening;
  return tcp;
}

Status TcpPeerServer::Open() {
  RETURN_IF_ERROR(listener_->Start());
  log::Info("the peer API listens on TCP",
            {{"address", address()}, {"tls", tls()}, {"token", options_.security->has_token()}});
  return {};
}

TcpPeerServer::~TcpPeerServer() { ShutDown(Clock::now()); }

void TcpPeerServer::Tick() {
  options_.security->Refresh();
  LimitThreads(options_.sessions_max, &quota_);
  if (tls_ == nullptr) return;
  if (Status updated = tls_->Update(); !updated) {
    log::Error("the peer API keeps its old certificate", {{"error", updated.error()}});
  }
}

void TcpPeerServer::ShutDown(TimePoint deadline) {
  if (server_ == nullptr) return;
  listener_->Stop();
  server_->Shutdown(rpc::GrpcDeadline(deadline));
  server_->Wait();
  server_.reset();
}

std::shared_ptr<void> TcpPeerServer::Keep(const std::string& peer) {
  return listener_->kept().Keep(peer);
}

std::string TcpPeerServer::address() const { return listening_.Text(); }

}  // namespace gantry::peer
