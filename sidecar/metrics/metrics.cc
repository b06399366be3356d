#include "sidecar/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lib/base/mutex.h"
#include "lib/metrics/scrape_listener.h"
#include "lib/metrics/series_grid.h"
#include "sidecar/metrics/metric_labels.h"
#include "sidecar/metrics/scrape_gauges.h"

namespace gantry::metrics {
namespace {

using prometheus::Counter;
using prometheus::Histogram;
using prometheus::Registry;
using Buckets = Histogram::BucketBoundaries;

Buckets DurationBuckets() {
  return {10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3,
          25e-3, 50e-3, 0.1,   0.25,   0.5,    1,      2.5,  10,     30};
}
Buckets RequestBuckets() {
  return {50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 10e-3, 50e-3, 0.25, 1, 5, 30};
}
// 1 KiB to 64 GiB in steps of 4.
Buckets SizeBuckets() {
  Buckets buckets;
  for (uint64_t bytes = 1 << 10; bytes <= uint64_t{64} << 30; bytes *= 4) {
    buckets.push_back(static_cast<double>(bytes));
  }
  return buckets;
}

size_t Index(auto value) { return static_cast<size_t>(value); }

// The index of a path in PathNamesAndNone.
size_t IndexOrNone(std::optional<wire::Path> path) {
  return path ? Index(*path) : static_cast<size_t>(wire::kPathCount);
}
std::span<const std::string_view> PathNames() { return PathNamesAndNone().first(wire::kPathCount); }

void Add(Counter& counter, uint64_t count) {
  if (count != 0) counter.Increment(static_cast<double>(count));
}

// gantry_path_fallbacks_total has a series for each path that is slower than RDMA: of the others no
// machine can be expected to have them between nodes. On a node there are those that share memory.
class FallbackCounters {
 public:
  explicit FallbackCounters(Registry& registry) {
    auto& family = prometheus::BuildCounter()
                       .Name("gantry_path_fallbacks_total")
                       .Help("Transfers that took a slower path than works on this side, and why")
                       .Register(registry);
    for (const wire::PathInfo& from : wire::kPathTable) {
      for (const wire::PathInfo& to : wire::kPathTable) {
        if (!from.shares_memory || to.shares_memory) continue;
        over_tcp_[Index(from.path)][Index(to.path)] = &family.Add({{"from", std::string(from.name)},
                                                                   {"to", std::string(to.name)},
                                                                   {"reason", "over_tcp"}});
      }
    }
    for (size_t to = kRdma + 1; to < PathNames().size(); ++to) {
      for (size_t why = 0; why < kPathObstacleNames.size(); ++why) {
        counters_[to][why] = &family.Add({{"from", std::string(PathNames()[kRdma])},
                                          {"to", std::string(PathNames()[to])},
                                          {"reason", std::string(kPathObstacleNames[why])}});
      }
    }
  }
  void Count(wire::Path to, PathObstacle why) {
    Counter* counter = counters_[Index(to)][Index(why)];
    if (counter != nullptr) counter->Increment();
  }
  void CountOverTcp(wire::Path from, wire::Path to) {
    Counter* counter = over_tcp_[Index(from)][Index(to)];
    if (counter != nullptr) counter->Increment();
  }

 private:
  static constexpr size_t kRdma = static_cast<size_t>(wire::Path::kRdma);

  std::array<std::array<Counter*, wire::kPathCount>, wire::kPathCount> over_tcp_{};
  std::array<std::array<Counter*, kPathObstacleNames.size()>, wire::kPathCount> counters_{};
};

// gantry_ipc_jobs_total has a series for each reason, of the plan that it is for.
class GpuJobCounters {
 public:
  explicit GpuJobCounters(Registry& registry) {
    auto& family = prometheus::BuildCounter()
                       .Name("gantry_ipc_jobs_total")
                       .Help("Parts of transfers of GPU memory, by what copied them and why")
                       .Register(registry);
    for (const GpuJobKind& kind : kGpuJobKinds) {
      counters_.push_back(
          &family.Add({{"plan", std::string(kind.plan)}, {"reason", std::string(kind.reason)}}));
    }
  }
  void Count(const std::array<uint64_t, kGpuJobKinds.size()>& jobs) {
    for (size_t kind = 0; kind < jobs.size(); ++kind) Add(*counters_[kind], jobs[kind]);
  }

 private:
  std::vector<Counter*> counters_;
};

// gantry_http_requests_total has a series for each method that a route really has.
class RequestCounters {
 public:
  explicit RequestCounters(Registry& registry) {
    auto& family = prometheus::BuildCounter()
                       .Name("gantry_http_requests_total")
                       .Help("Requests to the REST interface")
                       .Register(registry);
    for (const HttpEndpoint& endpoint : HttpEndpoints()) {
      for (const std::string_view status : kStatusClassNames) {
        counters_.push_back(&family.Add({{"route", std::string(endpoint.route)},
                                         {"method", std::string(endpoint.method)},
                                         {"code", std::string(status)}}));
      }
    }
  }
  void Count(std::string_view route, std::string_view method, int code) {
    const size_t status = code < 400 ? 0 : code < 500 ? 1 : 2;
    counters_.at(EndpointIndex(route, method) * kStatusClassNames.size() + status)->Increment();
  }

 private:
  std::vector<Counter*> counters_;
};

}  // namespace

struct Metrics::Families {
  explicit Families(std::string_view version) : gauges(std::make_shared<ScrapeGauges>(version)) {}

  const std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  const std::shared_ptr<ScrapeGauges> gauges;
  Mutex mutex;
  std::unique_ptr<ScrapeListener> listener GUARDED_BY(mutex);

  const LabelSet op{"op", OperationNames()};
  const LabelSet path{"path", PathNames()};
  const LabelSet path_or_none{"path", PathNamesAndNone()};

  CounterGrid transfers{*registry,
                        "gantry_transfers_total",
                        "Transfers by outcome",
                        {op, path_or_none, {"outcome", kOutcomeNames}}};
  CounterGrid bytes{
      *registry, "gantry_transfer_bytes_total", "Bytes moved for certain", {op, path}};
  CounterGrid chunks{*registry,
                     "gantry_transfer_chunks_total",
                     "Copies or work requests after merging and cutting",
                     {op, path, {"outcome", kChunkOutcomeNames}}};
  GpuJobCounters gpu_jobs{*registry};
  CounterGrid descriptors{*registry,
                          "gantry_transfer_descriptors_total",
                          "Ranges of transfers as submitted and after merging contiguous ones",
                          {{"stage", kDescriptorStageNames}}};
  CounterGrid active{*registry,
                     "gantry_transfer_active_seconds_total",
                     "Time in which at least one transfer was moving",
                     {op, path}};
  HistogramGrid duration{*registry,
                         "gantry_transfer_duration_seconds",
                         "Admission to outcome of accepted transfers",
                         {op, path},
                         DurationBuckets()};
  HistogramGrid stage_duration{*registry,
                               "gantry_transfer_stage_duration_seconds",
                               "Time that accepted transfers spent in each stage",
                               {{"stage", kStageNames}},
                               DurationBuckets()};
  HistogramGrid size{
      *registry, "gantry_transfer_size_bytes", "Bytes moved by a transfer", {path}, SizeBuckets()};

  CounterGrid access_errors{*registry,
                            "gantry_access_errors_total",
                            "Attempts to touch memory that may not or cannot be touched",
                            {path_or_none, {"reason", kAccessReasonNames}}};
  CounterGrid transport_errors{*registry,
                               "gantry_transport_errors_total",
                               "Ways that failed under a transfer",
                               {path_or_none, {"reason", kTransportReasonNames}}};
  CounterGrid retries{*registry,
                      "gantry_transfer_retries_total",
                      "Transfers that were begun again with a fresh description of remote buffers",
                      {{"reason", kRetryReasonNames}}};
  CounterGrid selected{
      *registry, "gantry_path_selected_total", "Transfers by the path chosen", {path}};
  FallbackCounters fallbacks{*registry};

  CounterGrid registrations{*registry,
                            "gantry_registrations_total",
                            "Registration requests",
                            {{"outcome", kSuccessNames}}};
  CounterGrid buffer_registrations{*registry,
                                   "gantry_buffer_registrations_total",
                                   "Buffers of the registration requests",
                                   {{"outcome", kSuccessNames}}};
  CounterGrid hold_expirations{
      *registry, "gantry_hold_expirations_total", "Holds whose time was over first", {}};
  CounterGrid notifications{
      *registry,
      "gantry_notifications_total",
      "Notifications from and to workloads of this sidecar",
      {{"direction", kNotificationDirectionNames}, {"outcome", kNotificationOutcomeNames}}};
  CounterGrid peer_refusals{*registry,
                            "gantry_peer_refusals_total",
                            "Connections and calls of peers that were turned away",
                            {{"reason", kPeerRefusalNames}}};
  CounterGrid workload_ends{*registry,
                            "gantry_workload_ends_total",
                            "Workloads that ended",
                            {{"reason", kWorkloadEndNames}}};
  CounterGrid events_lost{*registry,
                          "gantry_events_lost_total",
                          "Events dropped before every reader had seen them",
                          {}};

  RequestCounters requests{*registry};
  HistogramGrid request_duration{*registry,
                                 "gantry_http_request_duration_seconds",
                                 "Time to answer a request to the REST interface",
                                 {{"route", HttpRoutes()}},
                                 RequestBuckets()};
};

Metrics::Metrics(std::string_view version) : families_(std::make_unique<Families>(version)) {}
Metrics::~Metrics() = default;

void Metrics::TransferEnded(const TransferSample& sample) {
  const size_t op = Index(sample.operation);
  const size_t path = IndexOrNone(sample.path);
  families_->transfers.At(op, path, sample.outcome).Increment();
  Add(families_->descriptors.At(0), sample.descriptors_in);
  Add(families_->descriptors.At(1), sample.descriptors_out);
  if (!sample.path || sample.outcome == Outcome::kRejected) return;

  Add(families_->bytes.At(op, path), sample.bytes);
  Add(families_->chunks.At(op, path, 0), sample.chunks_succeeded);
  Add(families_->chunks.At(op, path, 1), sample.chunks_failed);
  Add(families_->chunks.At(op, path, 2), sample.chunks_retried);
  families_->gpu_jobs.Count(sample.gpu_jobs);
  families_->duration.At(op, path).Observe(sample.seconds);
  families_->size.At(path).Observe(static_cast<double>(sample.bytes));
  families_->stage_duration.At(Stage::kAdmit).Observe(sample.admit_seconds);
  families_->stage_duration.At(Stage::kFence).Observe(sample.fence_seconds);
  families_->stage_duration.At(Stage::kQueue).Observe(sample.queue_seconds);
  families_->stage_duration.At(Stage::kMove).Observe(sample.move_seconds);
  families_->stage_duration.At(Stage::kQuiesce).Observe(sample.quiesce_seconds);
}

void Metrics::AccessError(std::optional<wire::Path> path, ErrorCode code) {
  if (const auto reason = AccessReasonOf(code)) {
    families_->access_errors.At(IndexOrNone(path), *reason).Increment();
  }
}

void Metrics::TransportError(std::optional<wire::Path> path, ErrorCode code) {
  if (const auto reason = TransportReasonOf(code)) {
    families_->transport_errors.At(IndexOrNone(path), *reason).Increment();
  }
}

void Metrics::PathError(wire::Path path, ErrorCode code) {
  AccessError(path, code);  // no code has a reason in both
  TransportError(path, code);
}

void Metrics::TransferRetried(ErrorCode code) {
  families_->retries.At(IndexOrLast(kRetryReasonNames, InfoOf(code).metric_reason)).Increment();
}

void Metrics::PathSelected(wire::Path path) { families_->selected.At(path).Increment(); }

void Metrics::RdmaFallback(wire::Path taken, PathObstacle why) {
  families_->fallbacks.Count(taken, why);
}
void Metrics::NodeFallback(wire::Path from, wire::Path taken) {
  families_->fallbacks.CountOverTcp(from, taken);
}

void Metrics::Busy(wire::Operation operation, wire::Path path, double seconds) {
  families_->active.At(operation, path).Increment(std::max(seconds, 0.0));
}

void Metrics::RegistrationEnded(bool ok, uint64_t buffers) {
  families_->registrations.At(ok ? 0 : 1).Increment();
  Add(families_->buffer_registrations.At(ok ? 0 : 1), buffers);
}

void Metrics::HttpRequest(std::string_view route, std::string_view method, int code,
                          double seconds) {
  families_->requests.Count(route, method, code);
  families_->request_duration.At(RouteIndex(route)).Observe(seconds);
}

void Metrics::HoldExpired() { families_->hold_expirations.At().Increment(); }

void Metrics::NotificationEnded(NotificationDirection direction, NotificationOutcome outcome) {
  families_->notifications.At(direction, outcome).Increment();
}

void Metrics::PeerRefused(PeerRefusal why) { families_->peer_refusals.At(why).Increment(); }

void Metrics::WorkloadEnded(std::string_view reason) {
  families_->workload_ends.At(IndexOrLast(kWorkloadEndNames, reason)).Increment();
}

void Metrics::EventLost(uint64_t count) { Add(families_->events_lost.At(), count); }

void Metrics::SetGaugeSource(std::function<GaugeSample()> source) {
  families_->gauges->SetSource(std::move(source));
}

std::string Metrics::Text() const { return Exposition({families_->registry, families_->gauges}); }

Result<int> Metrics::Listen(const std::string& address) {
  const MutexLock lock(families_->mutex);
  if (families_->listener) return Fail(ErrorCode::kInternal, "metrics are served already");
  ASSIGN_OR_RETURN(families_->listener,
                   ScrapeListener::Start(address, {families_->registry, families_->gauges}));
  return families_->listener->port();
}

}  // namespace gantry::metrics
