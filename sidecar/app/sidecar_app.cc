#include "sidecar/app/sidecar_app.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/random_id.h"
#include "lib/base/version.h"
#include "lib/http/http_server.h"
#include "lib/rpc/health_server.h"
#include "sidecar/api/routes.h"
#include "sidecar/app/app_options.h"
#include "sidecar/app/copy_path.h"
#include "sidecar/app/housekeeping.h"
#include "sidecar/app/liveness.h"
#include "sidecar/app/messaging.h"
#include "sidecar/app/rdma_path.h"
#include "sidecar/app/run_directory.h"
#include "sidecar/app/tcp_path.h"
#include "sidecar/app/transport_list.h"
#include "sidecar/app/worker_views.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/peer/execution/execution_client.h"
#include "sidecar/peer/execution/execution_server.h"
#include "sidecar/peer/identity/peer_security.h"
#include "sidecar/peer/link/peer_directory.h"
#include "sidecar/peer/server/peer_server.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/registry/handoff_server.h"
#include "sidecar/registry/workload_end.h"
#include "sidecar/registry/workload_table.h"
#include "sidecar/transfer/transfer_engine.h"

namespace gantry {
namespace {

constexpr mode_t kRunDirMode = 0750;     // the pod's containers share a group
constexpr mode_t kForOtherUsers = 0666;  // the kernel's word on who connects decides
constexpr milliseconds kHttpStop{3'000};

int64_t UnixMillisNow() {
  return std::chrono::duration_cast<milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

peer::PeerSecurityOptions SecurityOptions(const SidecarConfig& config) {
  return {{config.peer_tls_cert, config.peer_tls_key, config.peer_tls_ca},
          config.peer_tls_names,
          config.peer_rules,
          config.peer_token_file,
          config.peer_plaintext};
}

// Also one that nobody reaches may reach others.
bool HasPeers(const SidecarConfig& config) {
  return !config.node_dir.empty() || !config.peer_listen.empty() || !config.peer_tls_cert.empty() ||
         !config.peer_token_file.empty();
}

class App final : public SidecarApp {
 public:
  App(const SidecarConfig& config, PodStanding standing, RunDirectory directory)
      : config_(config),
        standing_(std::move(standing)),
        directory_(std::move(directory)),
        generation_(RandomGeneration()),
        started_unix_ms_(UnixMillisNow()),
        events_(config.events_max),
        metrics_(Version()) {}

  ~App() override {
    stopping_ = true;
    if (health_) health_->Refresh();
    if (engine_) engine_->Close();  // those who wait for transfers get their answers
    if (execution_client_)
      execution_client_->Close();             // while the peers can say that theirs are quiet
    if (peer_server_) peer_server_->Close();  // and those who wait for peers or for uses
    if (peers_) peers_->Close();
    if (execution_server_) execution_server_->Close();
    if (registry_) registry_->Close();
    if (engine_) engine_->StopRetries();
    events_.Close();
    if (http_) http_->Stop(Clock::now() + kHttpStop);
    metrics_.SetGaugeSource(nullptr);
    handoff_.reset();  // the leases of the workloads end
    housekeeping_.reset();
    if (messaging_) messaging_->DisconnectPeers();
    peers_.reset();
    if (tcp_path_) tcp_path_->EndCopies();  // of peers' requests, too: the engine drives them
    engine_.reset();
    if (registry_) registry_->SetRevocationSink(nullptr);
    peer_server_.reset();
    health_.reset();  // last: who drains is alive
  }

  Status Build() {
    RETURN_IF_ERROR(StartWorkers());
    ASSIGN_OR_RETURN(security_, peer::PeerSecurity::Load(SecurityOptions(config_)));
    ASSIGN_OR_RETURN(tcp_path_, TcpPath::Create(config_, security_, *copies_));
    RETURN_IF_ERROR(OpenRdma());
    MakeRegistry();
    RETURN_IF_ERROR(MakeEngine());
    RETURN_IF_ERROR(StartPeers());
    ASSIGN_OR_RETURN(
        handoff_, registry::HandoffServer::Start({directory_.File("handoff.sock"), 0660,
                                                  fds_max_.handoff_connections, milliseconds(5000)},
                                                 *workloads_));
    ASSIGN_OR_RETURN(housekeeping_,
                     Housekeeping::Start({*security_, *registry_, *workloads_, *engine_,
                                          messaging_->holds(), liveness_}));
    metrics_.SetGaugeSource([this] { return Gauges(); });  // before anybody can ask
    RETURN_IF_ERROR(StartApi());
    if (!config_.health_listen.empty()) {
      ASSIGN_OR_RETURN(
          health_, rpc::HealthServer::Start({config_.health_listen, [this] { return Readiness(); },
                                             [this] { return Alive(); }}));
    }
    if (!config_.metrics_listen.empty()) {
      ASSIGN_OR_RETURN(const int port, metrics_.Listen(config_.metrics_listen));
      log::Info("metrics are served", {{"address", config_.metrics_listen}, {"port", port}});
    }
    return {};
  }

 private:
  Status StartWorkers() {
    ASSIGN_OR_RETURN(copies_, CopyPath::Create(config_));
    return {};
  }

  Status OpenRdma() {
    const std::vector<std::string> none;
    const auto& offered = standing_.pod.slot ? standing_.pod.slot->rdma_devices : none;
    rdma_path_ = RdmaPath::Create(config_, offered, copies_->pool());
    if (rdma_path_) bounce_path_ = std::make_unique<BouncePath>(**rdma_path_, tcp_path_->staging());
    if (rdma_path_ || rdma_path_.error().code != ErrorCode::kInvalidArgument) return {};
    return Fail(rdma_path_.error());
  }

  void MakeRegistry() {
    registry::WorkloadLimits limits;
    fds_max_ = BudgetFds(config_);
    limits.workloads_max = WorkloadsMax(config_, fds_max_);
    limits.fds_max = fds_max_.workloads;
    limits.fds_per_workload_max = limits.fds_max;
    workloads_ = std::make_unique<registry::WorkloadTable>(
        limits, [this](const registry::WorkloadInfo& workload, std::string_view why) {
          EndWorkload(workload, why);
        });
    registry::RegistryLimits registry_limits;
    registry_limits.buffers_max = config_.buffers_max;
    registry_ =
        std::make_unique<registry::BufferRegistry>(registry_limits, copies_->pool(), *workloads_);
    if (rdma_path_) registry_->SetNicRegistrar(&(*rdma_path_)->registrar());
    messaging_ = std::make_unique<Messaging>(*workloads_, *registry_, events_, metrics_);
  }

  Status MakeEngine() {
    const TransportSources sources = {
        config_, *copies_, *tcp_path_, rdma_path_, bounce_path_.get(), [this](const Error& why) {
          metrics_.PathError(wire::Path::kRdma, why.code);
        }};
    engine_ = std::make_unique<engine::TransferEngine>(
        EngineOptionsOf(config_), copies_->pool(), copies_->scheduler().hints(),
        MakeTransports(sources, &to_peers_), *registry_, events_, metrics_);
    RETURN_IF_ERROR(engine_->started());
    engine_->SetMessaging(messaging_->notifications(), messaging_->hold_client());
    return {};
  }

  Status StartPeers() {
    ASSIGN_OR_RETURN(node_id_, peer::ReadNodeId());
    if (!HasPeers(config_)) return {};
    ASSIGN_OR_RETURN(const UidSet node_uids, UidSet::Parse(config_.node_uids));
    if (!config_.node_dir.empty()) {
      RETURN_IF_ERROR(PrepareNodeDirectory(config_.node_dir, !node_uids.empty()));
    }
    peer::PeerIdentity self;
    self.name = config_.name;
    self.generation = generation_;
    self.node_id = node_id_;
    self.build = Version();
    peer::PeerServerOptions server;
    server.self = self;
    server.node_dir = config_.node_dir;
    server.uids_allowed = node_uids;
    if (!node_uids.empty()) server.socket_mode = kForOtherUsers;
    server.listen = config_.peer_listen;
    server.security = security_;
    server.count_refusal = [this](metrics::PeerRefusal why) { metrics_.PeerRefused(why); };
    server.paths = [this, at_start = engine_->Paths()] {
      return PathsNow(at_start, copies_->pool());
    };
    server.gpus = [this] { return copies_->pool().gpus().value_or(std::vector<std::string>()); };
    server.fds_max = fds_max_.peers;
    server.sessions_max = fds_max_.peer_sessions;
    server.connections_max = fds_max_.peer_connections;
    server.streams = tcp_path_->Offers();
    server.streams.tcp.connections_max = fds_max_.data_connections;
    server.streams.tcp.unauthenticated_max =
        std::min(server.streams.tcp.unauthenticated_max, fds_max_.data_connections / 4);
    if (rdma_path_) {
      server.rdma = &(*rdma_path_)->target();
      server.rdma_devices = (*rdma_path_)->addresses();
      const auto stage = bounce_path_->target();
      server.stage = stage.value_or(nullptr);
      if (!stage) server.why_no_stage = stage.error().message;
    }
    server.events = &events_;
    static_assert(milliseconds(SidecarConfig::kQuiesceMsLimit) <= wire::kPeerQuiesceMax);
    server.quiesce_max = Millis(config_.quiesce_ms_max);
    messaging_->ServeWith(&server);
    execution_server_ = std::make_unique<peer::ExecutionServer>(*engine_, *registry_);
    server.executions = execution_server_.get();
    ASSIGN_OR_RETURN(peer_server_, peer::PeerServer::Start(std::move(server), *registry_));
    registry_->SetRevocationSink(peer_server_.get());
    peer::PeerDirectoryOptions directory;
    directory.self = self;
    directory.uids_allowed = node_uids;
    directory.security = security_;
    directory.fds_max = fds_max_.peers;
    directory.tcp = to_peers_.tcp;
    directory.rdma = to_peers_.rdma;
    directory.bounce = to_peers_.bounce;
    if (!rdma_path_) directory.why_no_rdma = rdma_path_.error().message;
    peers_ = std::make_unique<peer::PeerDirectory>(
        std::move(directory), copies_->pool(), events_,
        [this](std::shared_ptr<const engine::RemoteBuffer> buffer, Error why) {
          engine_->StopTransfersUsing(std::move(buffer), std::move(why));
        });
    engine_->SetPeerGateway(peers_.get());
    execution_server_->SetPeers(peers_.get());
    execution_client_ = std::make_unique<peer::ExecutionClient>(*peers_, *peer_server_);
    engine_->SetPeerExecutor(execution_client_.get());
    messaging_->ConnectPeers(*peers_);
    return {};
  }

  // Runs for each workload that ends, on a thread of its own.
  void EndWorkload(const registry::WorkloadInfo& workload, std::string_view why) {
    engine_->StopTransfersOf(workload.name, workload.generation,
                             Error(ErrorCode::kCancelled,
                                   "workload '" + workload.name + "' ended: " + std::string(why)));
    messaging_->EndWorkload(workload);
    const TimePoint deadline = Clock::now() + Millis(config_.workload_end_ms);
    if (auto status = registry_->RemoveAll(workload.name, workload.generation, deadline); !status) {
      log::Warning("buffers of an ended workload are still in use, their removal goes on",
                   {{"workload", workload.name}, {"error", status.error()}});
    }
    engine::Event event;
    event.type = engine::EventType::kWorkloadEnded;
    event.subject = workload.name;
    event.detail = why;
    events_.Append(std::move(event));
    metrics_.WorkloadEnded(registry::ReasonOf(why));
  }

  metrics::GaugeSample Gauges() const {
    metrics::GaugeSample sample;
    sample.workloads = workloads_->List().size();
    sample.fds_held = workloads_->fds_held();
    const registry::RegistryTotals registered = registry_->Totals();
    sample.buffers = registered.buffers;
    sample.allocations = registered.allocations;
    sample.registered_bytes = registered.registered_bytes;
    sample.mapped_bytes = registered.mapped_bytes;
    SampleWorkers(copies_->pool(), &sample);
    const engine::EngineTotals transfers = engine_->Totals();
    sample.transfers_queued = transfers.queued;
    sample.transfers_running = transfers.running;
    sample.bytes_inflight = transfers.bytes_inflight;
    for (const engine::PeerInfo& peer : PeerList()) {
      ++sample.peers;
      if (peer.state == engine::PeerState::kUp) ++sample.peers_up;
    }
    sample.peer_fds_mapped = peers_ ? peers_->fds_held() : 0;
    const auto served = peer_server_ ? peer_server_->Totals() : peer::PeerServerTotals{};
    sample.peer_fds_waiting = served.fds;
    sample.tcp_initiator = to_peers_.tcp->Totals();
    sample.staging = tcp_path_->Staging();
    if (rdma_path_) sample.rdma = (*rdma_path_)->Sample(*to_peers_.rdma);
    sample.tcp_target = served.data;
    sample.holds = messaging_->holds().size();
    const http::HttpServer* const http = serving_.load();
    sample.http_connections = http != nullptr ? http->connections() : 0;
    return sample;
  }

  std::vector<engine::PeerInfo> PeerList() const {
    return peers_ ? peers_->List() : std::vector<engine::PeerInfo>{};
  }

  api::StatusInfo StatusNow() const {
    api::StatusInfo status;
    status.version = Version();
    status.generation = generation_;
    status.node_id = node_id_;
    status.name = config_.name;
    status.handoff_socket = directory_.File("handoff.sock");
    status.peer_address = peer_server_ ? peer_server_->address() : "";
    status.tcp_address = peer_server_ ? peer_server_->tcp_address() : "";
    if (status.peer_address.empty()) status.peer_address = status.tcp_address;
    status.pid = ::getpid();
    status.pod = standing_.pod;
    status.findings = standing_.findings;
    status.started_unix_ms = started_unix_ms_;
    status.workers = WorkerViews(copies_->pool());
    status.gpus = GpuViews(copies_->pool());
    if (rdma_path_) status.rdma_devices = (*rdma_path_)->Views();
    status.worker_pid_conflicts = copies_->pool().pid_conflicts();
    status.takes_unsealed_memory = config_.unsealed_memory;
    status.limits = LimitsOf(config_, fds_max_);
    return status;
  }

  Status Alive() const { return stopping_ ? Status() : liveness_.Check(); }

  // While it takes work: peers do not count.
  Status Readiness() const {
    if (stopping_) return Fail(ErrorCode::kShuttingDown, "the sidecar is stopping");
    RETURN_IF_ERROR(Alive());
    for (const worker::WorkerStatus& worker : copies_->pool().workers()) {
      if (worker.state == worker::WorkerState::kUsable) return {};
    }
    return Fail(ErrorCode::kWorkerLost, "no copy worker is running", "the log says why they end");
  }

  Status StartApi() {
    const http::HttpServerOptions options = HttpOptionsOf(config_, fds_max_, directory_);
    waits_ = std::make_unique<api::AskedWaits>(AskedWaitsMax(options));
    api_ = std::make_unique<api::ApiDependencies>(api::ApiDependencies{
        *workloads_, *registry_, *engine_, events_, metrics_, *waits_, peers_.get(),
        [this] { return StatusNow(); }, [this] { return Readiness(); },
        &messaging_->notifications(), &messaging_->holds(),
        [this](std::string_view name, std::string_view node_id) {
          return node_id == node_id_ ? peer::AddressOnThisNode(config_.node_dir, name) : "";
        },
        [this] { return Alive(); }});
    ASSIGN_OR_RETURN(http_,
                     http::HttpServer::Start(options, liveness_.Watching(api::MakeApi(*api_))));
    serving_ = http_.get();
    if (http_->tcp_port() != 0) log::Info("REST is served on TCP", {{"port", http_->tcp_port()}});
    return {};
  }

  const SidecarConfig config_;
  const PodStanding standing_;
  const RunDirectory directory_;
  const uint64_t generation_;
  const int64_t started_unix_ms_;
  std::string node_id_;
  Liveness liveness_;
  engine::EventLog events_;
  metrics::Metrics metrics_;
  std::unique_ptr<CopyPath> copies_;
  std::unique_ptr<registry::WorkloadTable> workloads_;
  // Before the registry, whose buffers are on its devices.
  Result<std::unique_ptr<RdmaPath>> rdma_path_ = nullptr;
  std::unique_ptr<registry::BufferRegistry> registry_;
  std::shared_ptr<peer::PeerSecurity> security_;
  std::unique_ptr<TcpPath> tcp_path_;
  std::unique_ptr<BouncePath> bounce_path_;  // null: no RDMA device is used
  std::unique_ptr<Messaging> messaging_;
  std::unique_ptr<engine::TransferEngine> engine_;
  PeerTransports to_peers_;  // the engine's
  std::unique_ptr<peer::ExecutionServer> execution_server_;
  std::unique_ptr<peer::ExecutionClient> execution_client_;
  std::unique_ptr<peer::PeerServer> peer_server_;
  std::unique_ptr<peer::PeerDirectory> peers_;
  std::unique_ptr<registry::HandoffServer> handoff_;
  std::unique_ptr<api::AskedWaits> waits_;
  std::unique_ptr<api::ApiDependencies> api_;
  std::unique_ptr<http::HttpServer> http_;
  std::atomic<const http::HttpServer*> serving_ = nullptr;  // http_, for those it calls
  std::unique_ptr<rpc::HealthServer> health_;
  std::unique_ptr<Housekeeping> housekeeping_;
  std::atomic<bool> stopping_{false};
  FdBudgets fds_max_;
};

}  // namespace

Result<std::unique_ptr<SidecarApp>> SidecarApp::Start(const SidecarConfig& config,
                                                      PodStanding standing) {
  ASSIGN_OR_RETURN(RunDirectory directory, RunDirectory::Take(config.run_dir, kRunDirMode));
  auto app = std::make_unique<App>(config, std::move(standing), std::move(directory));
  RETURN_IF_ERROR(app->Build());
  return std::unique_ptr<SidecarApp>(std::move(app));
}

}  // namespace gantry
