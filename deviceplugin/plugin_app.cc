#include "deviceplugin/plugin_app.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "deviceplugin/kubelet_link.h"
#include "deviceplugin/kubelet_pod_devices.h"
#include "deviceplugin/slot_reconciler.h"
#include "lib/base/log.h"
#include "lib/base/random_id.h"
#include "lib/rpc/health_server.h"
#include "lib/topology/sysfs_devices.h"

namespace gantry::deviceplugin {
namespace {

constexpr milliseconds kAskMax{5'000};
constexpr size_t kInstanceLength = 8;
// A round of the reconciler has 25 s for what it waits for.
constexpr milliseconds kStandsStill{60'000};

SlotPlanRules RulesOf(const PluginConfig& config) {
  SlotPlanRules rules;
  rules.resource = config.resource;
  rules.missing_gpu = config.missing_gpu == "fail" ? MissingGpu::kFail : MissingGpu::kRdmaOnly;
  rules.peer_gpus = config.peer_gpu_visibility == "none"   ? PeerGpuVisibility::kNone
                    : config.peer_gpu_visibility == "node" ? PeerGpuVisibility::kNode
                                                           : PeerGpuVisibility::kNamespace;
  rules.no_rdma = config.no_rdma;
  rules.nics = {config.rdma_devices, config.rdma_exclude};
  rules.cdi_spec_folders = config.cdi_spec_dirs;
  rules.peer_folder = config.peer_dir;
  rules.root = config.host_root;
  return rules;
}

std::string PodResourcesSocket(const PluginConfig& config) {
  return config.pod_resources_dir + "/kubelet.sock";
}

Status CheckRdmaPort(const std::string& root) {
  const auto devices = topology::ListRdmaDevices(root);
  const bool any = std::any_of(devices.begin(), devices.end(),
                               [](const auto& device) { return device.ActivePort() != nullptr; });
  if (any) return {};
  return Fail(ErrorCode::kPathUnavailable,
              "none of " + std::to_string(devices.size()) + " RDMA devices has an active port",
              "look at the cables and the subnet manager, or run without --require-rdma");
}

class App final : public PluginApp {
 public:
  explicit App(const PluginConfig& config)
      : config_(config),
        metrics_(PluginMetrics::Make()),
        slots_(config.slots),
        files_(config.cdi_dir, config.resource),
        folders_(config.peer_dir),
        pods_(KubeletPodDevices(PodResourcesSocket(config))),
        binder_({RulesOf(config), milliseconds(config.settle_ms)}, *pods_, files_, folders_,
                *metrics_),
        health_(slots_, *metrics_) {}

  // What waits for the kubelet waits no longer, and the objects end one after another.
  ~App() override { pods_->Stop(); }

  Status Run() {
    const bool binds = config_.binding == "cdi";
    if (!config_.metrics_listen.empty()) {
      ASSIGN_OR_RETURN(const int port, metrics_->Listen(config_.metrics_listen));
      log::Info("metrics are served", {{"address", config_.metrics_listen}, {"port", port}});
    }
    AddNeeds(binds);
    health_.RunChecks();
    reconciler_.emplace(
        SlotReconcilerOptions{.resource = config_.resource,
                              .binds = binds,
                              .interval = milliseconds(config_.reconcile_ms),
                              .root = config_.host_root},
        SlotReconciler::Parts{*pods_, slots_, files_, binder_, folders_, health_, *metrics_});
    RETURN_IF_ERROR(reconciler_->started());
    // Before the link, whose thread makes a server, too: none takes the other's room for threads.
    if (!config_.health_listen.empty()) {
      ASSIGN_OR_RETURN(health_server_,
                       rpc::HealthServer::Start({.listen = config_.health_listen,
                                                 .ready = [this] { return Ready(); },
                                                 .alive = [this] { return Alive(); }}));
    }
    ASSIGN_OR_RETURN(
        link_,
        KubeletLink::Start(
            {.folder = config_.kubelet_dir, .resource = config_.resource, .instance = Instance()},
            {slots_, files_, binder_, folders_, *metrics_,
             binds ? Binding::kCdi : Binding::kAllocate, RulesOf(config_)}));
    linked_ = true;
    return {};
  }

 private:
  std::string Instance() const {
    return config_.instance.empty() ? RandomToken().substr(0, kInstanceLength) : config_.instance;
  }

  void AddNeeds(bool binds) {
    // Without CDI nobody makes folders below it: all sidecars have this one.
    health_.Need(Unhealthy::kPeerDir, [this, binds] {
      return binds ? folders_.Prepare() : folders_.Make(folders_.parent());
    });
    if (binds) {
      health_.Need(Unhealthy::kCdiDir, [this] { return files_.Probe(); });
      health_.Need(Unhealthy::kPodResources, [this]() -> Status {
        ASSIGN_OR_RETURN([[maybe_unused]] const auto pods, pods_->List(Clock::now() + kAskMax));
        return {};
      });
    }
    if (config_.require_rdma) {
      health_.Need(Unhealthy::kNoRdmaPort, [this] { return CheckRdmaPort(config_.host_root); });
    }
  }

  Status Alive() const {
    if (reconciler_->Age() < kStandsStill) return {};
    return Fail(ErrorCode::kInternal, "the comparison with the node's pods has stood still");
  }

  Status Ready() const {
    if (!slots_.healthy()) return Fail(ErrorCode::kPathUnavailable, "slots cannot be used");
    if (!linked_ || !link_->registered())
      return Fail(ErrorCode::kPeerUnavailable, "no kubelet follows");
    return {};
  }

  const PluginConfig config_;
  const std::unique_ptr<PluginMetrics> metrics_;
  SlotList slots_;
  SlotFiles files_;
  const PeerFolders folders_;
  const std::unique_ptr<PodDevicesSource> pods_;
  SlotBinder binder_;
  SlotHealth health_;
  std::optional<SlotReconciler> reconciler_;
  std::unique_ptr<KubeletLink> link_;
  std::atomic<bool> linked_ = false;  // link_ is there, for the thread of the health service
  std::unique_ptr<rpc::HealthServer> health_server_;  // first to end
};

}  // namespace

Result<std::unique_ptr<PluginApp>> PluginApp::Start(const PluginConfig& config) {
  auto app = std::make_unique<App>(config);
  RETURN_IF_ERROR(app->Run());
  return std::unique_ptr<PluginApp>(std::move(app));
}

Result<std::string> DryRun(const PluginConfig& config) {
  const auto pods = KubeletPodDevices(PodResourcesSocket(config));
  const auto metrics = PluginMetrics::Make();
  SlotFiles files(config.cdi_dir, config.resource);
  const PeerFolders folders(config.peer_dir);
  const SlotBinder binder({RulesOf(config)}, *pods, files, folders, *metrics);
  ASSIGN_OR_RETURN(const auto previews, binder.PreviewAll(Clock::now() + kAskMax));
  auto list = nlohmann::json::array();
  for (const SlotBinder::Preview& preview : previews) {
    nlohmann::json entry = {{"slot", preview.slot}};
    if (preview.plan) {
      const SlotPlan& plan = *preview.plan;
      entry.update({{"namespace", plan.pod_namespace},
                    {"pod", plan.pod},
                    {"container", plan.container},
                    {"gpus", plan.gpus},
                    {"peerGpus", plan.peer_gpus},
                    {"rdmaDevices", plan.rdma_devices},
                    {"rdmaReason", plan.rdma_reason},
                    {"containerEdits", plan.edits.json()}});
    } else {
      entry.update({{"error", preview.plan.error().message}, {"hint", preview.plan.error().hint}});
    }
    list.push_back(std::move(entry));
  }
  return list.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gantry::deviceplugin
