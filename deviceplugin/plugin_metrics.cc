#include "deviceplugin/plugin_metrics.h"

#include <prometheus/collectable.h>
#include <prometheus/gauge.h>
#include <prometheus/metric_family.h>

#include <array>
#include <set>
#include <vector>

#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/version.h"
#include "lib/metrics/scrape_listener.h"
#include "lib/metrics/series_grid.h"

namespace gantry::deviceplugin {
namespace {

using metrics::CounterGrid;
using metrics::GaugeGrid;
using metrics::HistogramGrid;
using prometheus::Histogram;

constexpr std::array<std::string_view, 2> kOutcomes = {"succeeded", "failed"};
constexpr std::array<std::string_view, 3> kSlotStates = {"free", "bound", "unhealthy"};
constexpr std::array<std::string_view, 4> kUnhealthyReasons = {"cdi_dir", "pod_resources",
                                                               "peer_dir", "no_rdma_port"};
constexpr std::array<std::string_view, 9> kBindFailures = {
    "unknown_slot",  "pod_not_found", "pod_resources", "missing_gpu", "unsupported_gpu",
    "gpu_not_found", "cdi_write",     "peer_dir",      "internal"};
// Allocate reads and writes nothing but one unlink; PreStart asks the kubelet and settles.
const Histogram::BucketBoundaries kAllocateSeconds = {0.0001, 0.0005, 0.001, 0.005, 0.01,
                                                      0.05,   0.1,    1,     10};
const Histogram::BucketBoundaries kPreStartSeconds = {0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30};

class LogLines final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    prometheus::ClientMetric dropped;
    dropped.counter.value = static_cast<double>(log::LinesDropped());
    return {{"gantry_dp_log_lines_dropped_total",
             "Lines of the plugin's log that standard error did not take",
             prometheus::MetricType::Counter,
             {dropped}}};
  }
};

class Families final : public PluginMetrics {
 public:
  Families() {
    prometheus::BuildGauge()
        .Name("gantry_dp_build_info")
        .Help("1, with the version of this build")
        .Register(*registry_)
        .Add({{"version", std::string(Version())}})
        .Set(1);
    SetRdmaPorts({});
    SetHealthy();
  }

  void Registered(bool succeeded) override { registrations_.At(succeeded ? 0 : 1).Increment(); }
  void SetKubeletConnected(bool connected) override { connected_.At().Set(connected ? 1 : 0); }
  void Allocated(double seconds) override { allocate_.At().Observe(seconds); }
  void PreStarted(bool succeeded, double seconds) override {
    prestart_.At(succeeded ? 0 : 1).Observe(seconds);
  }
  void BindFailed(BindFailure reason) override { bind_failures_.At(reason).Increment(); }
  void SetUnhealthy(Unhealthy reason, bool holds) override {
    unhealthy_.At(reason).Set(holds ? 1 : 0);
    SetHealthy();
  }
  void FileRemoved() override { files_removed_.At().Increment(); }
  void SetSlots(const SlotSample& sample) override {
    slots_.At(0).Set(static_cast<double>(sample.free));
    slots_.At(1).Set(static_cast<double>(sample.bound));
    slots_.At(2).Set(static_cast<double>(sample.unhealthy));
    files_.At().Set(static_cast<double>(sample.files));
    sidecars_.At().Set(static_cast<double>(sample.sidecars));
  }

  void SetRdmaPorts(const std::vector<RdmaPortSample>& ports) override EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::set<std::string> seen;
    for (const RdmaPortSample& port : ports) {
      ports_.Add({{"device", port.device}}).Set(port.active ? 1 : 0);
      seen.insert(port.device);
    }
    if (seen.empty()) {  // the series is there wherever the plugin is
      ports_.Add({{"device", "none"}}).Set(0);
      seen.insert("none");
    }
    for (const std::string& device : known_ports_) {
      if (!seen.contains(device)) ports_.Remove(&ports_.Add({{"device", device}}));
    }
    known_ports_ = std::move(seen);
  }

  Result<int> Listen(const std::string& address) override {
    ASSIGN_OR_RETURN(listener_, metrics::ScrapeListener::Start(address, sources_));
    return listener_->port();
  }
  std::string Text() const override { return metrics::Exposition(sources_); }

 private:
  void SetHealthy() {
    bool healthy = true;
    for (size_t i = 0; i < kUnhealthyReasons.size(); ++i) healthy &= unhealthy_.At(i).Value() == 0;
    healthy_.At().Set(healthy ? 1 : 0);
  }

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  const metrics::Sources sources_ = {registry_, std::make_shared<LogLines>()};
  CounterGrid registrations_{*registry_,
                             "gantry_dp_registrations_total",
                             "Registrations with the kubelet",
                             {{"outcome", kOutcomes}}};
  GaugeGrid connected_{*registry_,
                       "gantry_dp_kubelet_connected",
                       "1 while the kubelet follows the list of slots",
                       {}};
  GaugeGrid slots_{*registry_, "gantry_dp_slots", "Slots by state", {{"state", kSlotStates}}};
  GaugeGrid healthy_{*registry_, "gantry_dp_healthy", "1 while slots are offered", {}};
  GaugeGrid unhealthy_{*registry_,
                       "gantry_dp_unhealthy",
                       "1 while this keeps slots from being offered",
                       {{"reason", kUnhealthyReasons}}};
  HistogramGrid allocate_{*registry_,
                          "gantry_dp_allocate_duration_seconds",
                          "Time of Allocate, which holds up the pod's admission",
                          {},
                          kAllocateSeconds};
  HistogramGrid prestart_{*registry_,
                          "gantry_dp_prestart_duration_seconds",
                          "Time of PreStartContainer, which holds up the container's start",
                          {{"outcome", kOutcomes}},
                          kPreStartSeconds};
  CounterGrid bind_failures_{*registry_,
                             "gantry_dp_bind_failures_total",
                             "Containers that were not started, each attempt",
                             {{"reason", kBindFailures}}};
  GaugeGrid files_{*registry_, "gantry_dp_cdi_files", "CDI specs of slots", {}};
  GaugeGrid sidecars_{
      *registry_, "gantry_dp_sidecars", "Containers with a slot whose sidecar lives", {}};
  CounterGrid files_removed_{*registry_,
                             "gantry_dp_cdi_files_removed_total",
                             "CDI specs removed as their pods were gone",
                             {}};
  prometheus::Family<prometheus::Gauge>& ports_ = prometheus::BuildGauge()
                                                      .Name("gantry_dp_rdma_port_active")
                                                      .Help("1 while the device has an active port")
                                                      .Register(*registry_);
  Mutex mutex_;
  std::set<std::string> known_ports_ GUARDED_BY(mutex_);
  std::unique_ptr<metrics::ScrapeListener> listener_;
};

}  // namespace

std::unique_ptr<PluginMetrics> PluginMetrics::Make() { return std::make_unique<Families>(); }

}  // namespace gantry::deviceplugin
