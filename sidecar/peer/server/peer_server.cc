#include "sidecar/peer/server/peer_server.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "lib/base/fd_passing.h"
#include "lib/base/log.h"
#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "lib/base/thread.h"
#include "lib/rpc/bounded_listener.h"
#include "lib/rpc/grpc_deadline.h"
#include "lib/rpc/grpc_threads.h"
#include "lib/wire/peer_execution_messages.h"
#include "lib/wire/peer_messages.h"
#include "sidecar/peer/identity/grpc_status.h"
#include "sidecar/peer/identity/peer_address.h"
#include "sidecar/peer/identity/session_proof.h"
#include "sidecar/peer/identity/socket_admission.h"
#include "sidecar/peer/server/fd_socket.h"
#include "sidecar/peer/server/fd_tickets.h"
#include "sidecar/peer/server/initiator_table.h"
#include "sidecar/peer/server/node_lock.h"
#include "sidecar/peer/server/peer_service.h"
#include "sidecar/peer/server/session_buffers.h"
#include "sidecar/peer/server/stage_offers.h"
#include "sidecar/peer/server/stream_offers.h"
#include "sidecar/peer/server/tcp_peer_server.h"

namespace gantry::peer {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kTicketsMax = 65'536;
constexpr milliseconds kShutdownMax{500};

// Both listening sockets, ready before anyone is served.
struct NodeFiles {
  std::string socket_path;
  std::string fd_socket_name;
  NodeLock lock;
  UniqueFd listener;
};

Result<NodeFiles> MakeNodeFiles(const PeerServerOptions& options) {
  RETURN_IF_ERROR(CheckName(options.self.name, "name"));
  if (options.node_dir.empty()) return NodeFiles{};
  const std::string base = options.node_dir + "/" + options.self.name;
  ASSIGN_OR_RETURN(NodeLock lock, NodeLock::Take(base + ".peer.lock"));
  const std::string socket_path = NodeSocket(options.node_dir, options.self.name);
  ASSIGN_OR_RETURN(UniqueFd listener, ListenUnix(socket_path, SOCK_STREAM | SOCK_NONBLOCK,
                                                 options.socket_mode, kBacklog));
  return NodeFiles{socket_path, options.self.name + ".fds.sock", std::move(lock),
                   std::move(listener)};
}

class GrpcPeerServer final : public PeerServer, private FdSocketHandler {
 public:
  GrpcPeerServer(PeerServerOptions options, const registry::BufferRegistry& registry,
                 NodeFiles files, UniqueFd wake)
      : options_(std::move(options)),
        files_(std::move(files)),
        wake_(std::move(wake)),
        initiators_(options_.sessions_max, options_.ticket_ttl, options_.process_exit_grace,
                    [this](const auto& initiator, const auto& buffer, auto outcome) {
                      ReportLate(initiator, buffer, outcome);
                    }),
        tickets_(kTicketsMax, options_.ticket_ttl),
        buffers_(registry, initiators_),
        streams_(options_.streams),
        queue_pairs_(options_.rdma, options_.rdma_devices, initiators_),
        stages_(options_.stage, options_.why_no_stage, initiators_, buffers_),
        service_({options_.self,
                  options_.paths,
                  files_.fd_socket_name,
                  options_.heartbeat,
                  options_.ticket_ttl,
                  options_.fds_max,
                  {},
                  options_.versions,
                  options_.notifications,
                  options_.holds,
                  options_.executions,
                  options_.quiesce_max,
                  options_.gpus},
                 registry, initiators_, tickets_, streams_, queue_pairs_, stages_),
        tcp_service_({options_.self,
                      options_.paths,
                      {},
                      options_.heartbeat,
                      options_.ticket_ttl,
                      0,
                      PeerAdmission(options_.security, options_.count_refusal),
                      options_.versions,
                      options_.notifications,
                      options_.holds,
                      options_.executions,
                      options_.quiesce_max,
                      {},
                      [this](const std::string& peer) { return called_.load()->Keep(peer); }},
                     registry, initiators_, tickets_, streams_, queue_pairs_, stages_) {}
  ~GrpcPeerServer() override;

  Status Run();

  InitiatorTable::Releases Revoke(
      const std::vector<std::shared_ptr<const registry::Buffer>>& buffers,
      TimePoint deadline) override;
  void Close() override { initiators_.Close(); }
  std::vector<std::string> ProofsFor(uint64_t initiator_generation,
                                     const std::string& verified_identity) const override {
    std::vector<std::string> proofs;
    for (const std::string& session :
         initiators_.SessionsOf(initiator_generation, verified_identity)) {
      if (proofs.size() < wire::kPeerProofsMax) proofs.push_back(SessionProof(session));
    }
    return proofs;
  }
  std::vector<std::string> EndSessionsOf(uint64_t initiator_generation,
                                         const std::string& verified_identity) override {
    return initiators_.EndSessionsOf(initiator_generation, verified_identity);
  }
  bool AwaitUnmapped(const std::vector<std::string>& sessions, TimePoint deadline) override {
    return initiators_.AwaitUnmapped(sessions, deadline);
  }
  PeerServerTotals Totals() const override;
  std::string address() const override {
    return files_.socket_path.empty() ? "" : "unix:" + files_.socket_path;
  }
  uint16_t streams_port() const override { return streams_.port(); }
  std::string tcp_address() const override { return tcp_ ? tcp_->address() : ""; }

 private:
  Result<std::string> AttachLease(std::string_view lease_ticket) override {
    return initiators_.AttachLease(lease_ticket);
  }
  Result<std::vector<std::shared_ptr<const UniqueFd>>> Redeem(const std::string& session,
                                                              std::string_view ticket) override {
    return tickets_.Redeem(session, ticket);
  }
  void LeaseEnded(const std::string& session) override {
    initiators_.LeaseEnded(session);
    if (options_.holds != nullptr) options_.holds->LoseUses(session);
  }

  void ReportLate(const wire::PeerIdentity& initiator, const InitiatorTable::Revoked& buffer,
                  registry::PeerOutcome outcome);
  Status OpenNodeServer();
  void ListenInNode(grpc::ServerBuilder* builder);
  void KeepTicking(const std::stop_token& stop);

  const PeerServerOptions options_;
  NodeFiles files_;
  const UniqueFd wake_;
  InitiatorTable initiators_;
  FdTickets tickets_;
  SessionBuffers buffers_;
  StreamOffers streams_;  // ends before what its connections touch
  const QueuePairOffers queue_pairs_;
  const StageOffers stages_;
  PeerService service_;
  PeerService tcp_service_;
  grpc::ResourceQuota quota_{"peer API"};
  std::unique_ptr<grpc::Server> server_;  // null: no node directory
  std::unique_ptr<FdSocket> fd_socket_;
  std::atomic<TcpPeerServer*> called_ = nullptr;  // tcp_, as gRPC's threads see it in its calls
  std::unique_ptr<TcpPeerServer> tcp_;            // null: not over TCP
  std::unique_ptr<rpc::BoundedListener> node_listener_;  // null: no node directory
  std::jthread ticker_;
};

Status GrpcPeerServer::Run() {
  RETURN_IF_ERROR(streams_.Listen(buffers_));
  if (!files_.socket_path.empty()) RETURN_IF_ERROR(OpenNodeServer());
  if (!options_.listen.empty()) {
    ASSIGN_OR_RETURN(tcp_, TcpPeerServer::Make({options_.listen, options_.security,
                                                options_.sessions_max, options_.connections_max,
                                                options_.memory_bytes_max, options_.silence_max},
                                               options_.count_refusal, tcp_service_));
    called_ = tcp_.get();
    RETURN_IF_ERROR(tcp_->Open());
  }
  ASSIGN_OR_RETURN(ticker_, StartThread("gantry-peers", [this](const std::stop_token& stop) {
                     KeepTicking(stop);
                   }));
  return {};
}

Status GrpcPeerServer::OpenNodeServer() {
  quota_.Resize(options_.memory_bytes_max);
  LimitThreads(options_.sessions_max, &quota_);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota_);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  builder.SetMaxReceiveMessageSize(wire::kPeerMessageBytesMax);
  builder.SetMaxSendMessageSize(wire::kPeerMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  builder.RegisterService(&service_);
  ListenInNode(&builder);
  ASSIGN_OR_RETURN(server_, rpc::StartServer("the peer API", rpc::kSyncServerThreads, &builder));
  RETURN_IF_ERROR(node_listener_->Start());
  FdSocket::Options fd_options;
  fd_options.path = options_.node_dir + "/" + files_.fd_socket_name;
  fd_options.mode = options_.socket_mode;
  fd_options.uids_allowed = options_.uids_allowed;
  fd_options.connections_max = options_.connections_max;
  ASSIGN_OR_RETURN(fd_socket_, FdSocket::Start(std::move(fd_options), *this));
  log::Info("the peer API listens", {{"address", address()}});
  return {};
}

// gRPC does not look at the credentials of a Unix socket, so that is done here.
void GrpcPeerServer::ListenInNode(grpc::ServerBuilder* builder) {
  rpc::BoundedListener::Options bounds;
  bounds.what = "the peer API in the node directory";
  bounds.connections_max = options_.connections_max;
  bounds.old_ones_stay = true;
  bounds.needs_threads = true;
  std::vector<UniqueFd> listeners;
  listeners.push_back(std::move(files_.listener));
  node_listener_ = std::make_unique<rpc::BoundedListener>(
      std::move(bounds), std::move(listeners),
      [this](int listener) { return AcceptAllowed(listener, options_.uids_allowed); });
  node_listener_->AddTo(builder, grpc::InsecureServerCredentials());
}

GrpcPeerServer::~GrpcPeerServer() {
  ticker_.request_stop();
  ::eventfd_write(wake_.get(), 1);
  if (ticker_.joinable()) ticker_.join();
  if (node_listener_ != nullptr) node_listener_->Stop();
  if (!files_.socket_path.empty()) ::unlink(files_.socket_path.c_str());
  initiators_.ShutDown(kShutdownMax);
  if (server_ != nullptr) {
    server_->Shutdown(rpc::GrpcDeadline(Clock::now() + kShutdownMax));
    server_->Wait();
  }
  if (tcp_ != nullptr) tcp_->ShutDown(Clock::now() + kShutdownMax);
  fd_socket_.reset();
}

void GrpcPeerServer::KeepTicking(const std::stop_token& stop) {
  TimePoint next_tick = Clock::now() + options_.heartbeat;
  while (!stop.stop_requested()) {
    pollfd woken = {wake_.get(), POLLIN, 0};
    const auto wait = std::chrono::ceil<milliseconds>(next_tick - Clock::now());
    ::poll(&woken, 1, static_cast<int>(std::max<int64_t>(0, wait.count())));
    const TimePoint now = Clock::now();
    if (now < next_tick) continue;
    initiators_.Tick(now);
    tickets_.DropExpired(now);
    LimitThreads(options_.sessions_max, &quota_);
    if (tcp_ != nullptr) tcp_->Tick();
    next_tick = now + options_.heartbeat;
  }
}

InitiatorTable::Releases GrpcPeerServer::Revoke(
    const std::vector<std::shared_ptr<const registry::Buffer>>& buffers, TimePoint deadline) {
  std::vector<InitiatorTable::Revoked> revoked;
  for (const auto& buffer : buffers) {
    const registry::Buffer::Description& description = buffer->description();
    tickets_.DropBuffer(description.id);
    revoked.push_back({description.id, description.generation,
                       buffer->state() == registry::BufferState::kSuspended, description.workload,
                       description.workload_generation, description.name,
                       [buffer] { return buffer->RefuseToPeers(); }});
  }
  return initiators_.Revoke(revoked, deadline);
}

void GrpcPeerServer::ReportLate(const wire::PeerIdentity& initiator,
                                const InitiatorTable::Revoked& buffer,
                                registry::PeerOutcome outcome) {
  if (options_.events == nullptr) return;
  engine::Event event;
  event.type = engine::EventType::kBufferRevoked;
  event.workload = buffer.workload;
  event.workload_generation = buffer.workload_generation;
  event.subject = buffer.name;
  event.detail = "peer '" + initiator.name + "' (generation " + HexOf(initiator.generation) +
                 ") did not let go of it in time and " +
                 (outcome == registry::PeerOutcome::kRefused ? "is refused it" : "was cut off");
  options_.events->Append(std::move(event));
}

PeerServerTotals GrpcPeerServer::Totals() const {
  PeerServerTotals totals{initiators_.size(),        0, tickets_.size(),
                          service_.fds_in_tickets(), 0, streams_.Totals()};
  if (fd_socket_ != nullptr) {
    totals.connections = fd_socket_->connections();
    totals.descriptors_sent = fd_socket_->descriptors_sent();
  }
  return totals;
}

std::function<std::vector<wire::PathReport>()> WithoutStreams(
    std::function<std::vector<wire::PathReport>()> paths) {
  return [paths = std::move(paths)] {
    std::vector<wire::PathReport> reports = paths();
    for (wire::PathReport& report : reports) {
      if (report.path != wire::Path::kTcp || !report.available) continue;
      report = {wire::Path::kTcp, false, "the buffer's owner takes no data connections"};
    }
    return reports;
  };
}

}  // namespace

Result<std::unique_ptr<PeerServer>> PeerServer::Start(PeerServerOptions options,
                                                      const registry::BufferRegistry& registry) {
  if (options.security == nullptr) {
    ASSIGN_OR_RETURN(options.security, PeerSecurity::Load({}));
  }
  if (options.streams.listen.empty()) options.paths = WithoutStreams(std::move(options.paths));
  ASSIGN_OR_RETURN(NodeFiles files, MakeNodeFiles(options));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Fail(SystemError(ErrorCode::kResourceExhausted, "eventfd", errno));
  auto server = std::make_unique<GrpcPeerServer>(std::move(options), registry, std::move(files),
                                                 std::move(wake));
  RETURN_IF_ERROR(server->Run());
  return std::unique_ptr<PeerServer>(std::move(server));
}

}  // namespace gantry::peer
