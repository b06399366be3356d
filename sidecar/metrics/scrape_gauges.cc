#include "sidecar/metrics/scrape_gauges.h"

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <span>
#include <utility>

#include "lib/base/log.h"
#include "sidecar/metrics/process_usage.h"

namespace gantry::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// One series: the value of the family's only label (empty: no label) and the number.
struct Series {
  std::string_view label;
  double value;
};

MetricFamily Family(MetricType type, const char* name, const char* help, std::string_view label,
                    std::span<const Series> all) {
  MetricFamily family{name, help, type, {}};
  for (const Series& series : all) {
    ClientMetric metric;
    if (!label.empty()) metric.label.push_back({std::string(label), std::string(series.label)});
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = series.value;
    family.metric.push_back(std::move(metric));
  }
  return family;
}
MetricFamily Family(MetricType type, const char* name, const char* help, std::string_view label,
                    std::initializer_list<Series> all) {
  return Family(type, name, help, label, std::span<const Series>(all.begin(), all.size()));
}

template <typename Number>
MetricFamily GaugeOf(const char* name, const char* help, Number value) {
  return Family(MetricType::Gauge, name, help, {}, {{{}, static_cast<double>(value)}});
}

template <typename Number>
MetricFamily CounterOf(const char* name, const char* help, Number value) {
  return Family(MetricType::Counter, name, help, {}, {{{}, static_cast<double>(value)}});
}

void AppendTables(const GaugeSample& now, std::vector<MetricFamily>& out) {
  out.push_back(GaugeOf("gantry_workloads", "Workloads with a lease", now.workloads));
  out.push_back(GaugeOf("gantry_buffers", "Registered buffers", now.buffers));
  out.push_back(GaugeOf("gantry_allocations", "Allocations that the buffers lie in, counted once",
                        now.allocations));
  out.push_back(
      GaugeOf("gantry_registered_bytes", "Sum of the buffers' lengths", now.registered_bytes));
  out.push_back(GaugeOf("gantry_mapped_bytes", "Sum of the sizes of the mapped allocations",
                        now.mapped_bytes));
  out.push_back(GaugeOf("gantry_ipc_mapped_bytes",
                        "Sum of the sizes of the GPU allocations mapped for copy workers",
                        now.ipc_mapped_bytes));
  out.push_back(
      GaugeOf("gantry_ipc_workers", "Copy workers with a context on a GPU", now.ipc_workers));
  out.push_back(GaugeOf("gantry_ipc_workers_refused",
                        "Copy workers whose GPU had no room for a context, and that ask again",
                        now.ipc_workers_refused));
  out.push_back(
      GaugeOf("gantry_mappings", "Mappings of allocations over all copy workers", now.mappings));
  out.push_back(GaugeOf("gantry_fds_held", "File descriptors handed over by workloads and kept",
                        now.fds_held));
  const auto queued = static_cast<double>(now.transfers_queued);
  const auto running = static_cast<double>(now.transfers_running);
  out.push_back(Family(MetricType::Gauge, "gantry_transfers_inflight",
                       "Accepted transfers that are not finished", "state",
                       {{"queued", queued}, {"running", running}}));
  out.push_back(GaugeOf("gantry_transfer_inflight_bytes", "Bytes of the unfinished transfers",
                        now.bytes_inflight));
  const auto up = static_cast<double>(now.peers_up);
  const auto down = static_cast<double>(now.peers) - up;
  out.push_back(Family(MetricType::Gauge, "gantry_peers", "Peers by state of their connection",
                       "state", {{"up", up}, {"down", down}}));
  const auto mapped = static_cast<double>(now.peer_fds_mapped);
  const auto waiting = static_cast<double>(now.peer_fds_waiting);
  out.push_back(Family(MetricType::Gauge, "gantry_peer_fds",
                       "File descriptors of peers' memory, and those that wait for peers", "state",
                       {{"mapped", mapped}, {"waiting", waiting}}));
  out.push_back(GaugeOf("gantry_holds", "Holds that have not ended", now.holds));
  out.push_back(GaugeOf("gantry_http_connections", "Open connections to the REST interface",
                        now.http_connections));
}

void AppendTcp(const GaugeSample& now, std::vector<MetricFamily>& out) {
  const auto both = [&](MetricType type, const char* name, const char* help,
                        uint64_t TcpConnections::*member) {
    out.push_back(Family(type, name, help, "side",
                         {{"initiator", static_cast<double>(now.tcp_initiator.*member)},
                          {"target", static_cast<double>(now.tcp_target.*member)}}));
  };
  both(MetricType::Gauge, "gantry_tcp_connections", "Open data connections between sidecars",
       &TcpConnections::open);
  both(MetricType::Counter, "gantry_tcp_connections_opened_total",
       "Data connections that were made and admitted", &TcpConnections::opened);
  both(MetricType::Counter, "gantry_tcp_connection_failures_total",
       "Data connections that were not made, turned away, or ended for what they said",
       &TcpConnections::failed);
  out.push_back(Family(MetricType::Counter, "gantry_tcp_served_bytes_total",
                       "Payload bytes of this sidecar's buffers that peers moved over TCP",
                       "operation",
                       {{"read", static_cast<double>(now.tcp_target.bytes_read)},
                        {"write", static_cast<double>(now.tcp_target.bytes_written)}}));
}

// Of each device: those are few, and stay what they are from the start on.
using Devices = std::vector<RdmaDeviceSample>;

MetricFamily ByDevice(MetricType type, const char* name, const char* help, const Devices& devices,
                      uint64_t RdmaDeviceSample::*member) {
  std::vector<Series> all;
  for (const RdmaDeviceSample& of : devices) {
    all.push_back({of.device, static_cast<double>(of.*member)});
  }
  return Family(type, name, help, "device", all);
}

MetricFamily ByDeviceAndOp(const char* name, const char* help, const Devices& devices,
                           uint64_t RdmaDeviceSample::*read, uint64_t RdmaDeviceSample::*write) {
  MetricFamily both = ByDevice(MetricType::Counter, name, help, devices, read);
  for (ClientMetric& metric : both.metric) metric.label.push_back({"op", "read"});
  MetricFamily written = ByDevice(MetricType::Counter, name, help, devices, write);
  for (ClientMetric& metric : written.metric) {
    metric.label.push_back({"op", "write"});
    both.metric.push_back(std::move(metric));
  }
  return both;
}

void AppendRdma(const RdmaSample& now, std::vector<MetricFamily>& out) {
  Devices devices = now.devices;
  // Where there is no device the series say so, and alerts on the names do not go blind.
  if (devices.empty()) devices.push_back({.device = "none"});
  const auto gauge = [&](const char* name, const char* help, uint64_t RdmaDeviceSample::*member) {
    out.push_back(ByDevice(MetricType::Gauge, name, help, devices, member));
  };
  gauge("gantry_chunks", "Chunks registered as memory regions, by device",
        &RdmaDeviceSample::chunks);
  std::vector<Series> active;
  for (const RdmaDeviceSample& of : devices) active.push_back({of.device, of.port_active ? 1. : 0});
  out.push_back(Family(MetricType::Gauge, "gantry_rdma_port_active",
                       "Whether the port of an RDMA device is active", "device", active));
  out.push_back(Family(MetricType::Gauge, "gantry_rdma_connections",
                       "Connections of queue pairs between sidecars", "side",
                       {{"initiator", static_cast<double>(now.initiator_connections)},
                        {"target", static_cast<double>(now.target_connections)}}));
  gauge("gantry_rdma_queue_pairs", "Queue pairs of the connections made here",
        &RdmaDeviceSample::queue_pairs);
  gauge("gantry_rdma_work_requests_inflight", "Work requests that were posted and are not done",
        &RdmaDeviceSample::inflight);
  gauge("gantry_rdma_work_requests_inflight_max", "Work requests that the queue pairs take",
        &RdmaDeviceSample::inflight_max);
  out.push_back(ByDeviceAndOp("gantry_rdma_work_requests_total", "Work requests that were done",
                              devices, &RdmaDeviceSample::reads, &RdmaDeviceSample::writes));
  out.push_back(ByDeviceAndOp("gantry_rdma_bytes_total", "Bytes that work requests moved", devices,
                              &RdmaDeviceSample::bytes_read, &RdmaDeviceSample::bytes_written));
  out.push_back(ByDevice(MetricType::Counter, "gantry_rdma_work_requests_retried_total",
                         "Work requests that came back undone and have to be sent again", devices,
                         &RdmaDeviceSample::retried));
}

void AppendStaging(const StagingSample& now, std::vector<MetricFamily>& out) {
  out.push_back(GaugeOf(
      "gantry_staging_bytes",
      "Size of the host memory that bytes of GPUs and unsealed files are staged in", now.bytes));
  out.push_back(Family(MetricType::Gauge, "gantry_staging_slices_in_use",
                       "Slices of it that belong to a request, by side", "side",
                       {{"initiator", static_cast<double>(now.initiator_slices)},
                        {"target", static_cast<double>(now.target_slices)}}));
  out.push_back(Family(MetricType::Counter, "gantry_staging_bytes_total",
                       "Bytes that copy workers moved between buffers and the staging memory",
                       "direction",
                       {{"from_buffers", static_cast<double>(now.bytes_from_buffers)},
                        {"to_buffers", static_cast<double>(now.bytes_to_buffers)}}));
}

void AppendWorkers(const GaugeSample& now, std::vector<MetricFamily>& out) {
  const auto ready = static_cast<double>(now.workers_ready);
  const auto missing = static_cast<double>(now.workers) - ready;
  out.push_back(Family(MetricType::Gauge, "gantry_workers", "Copy workers of the pool by state",
                       "state", {{"ready", ready}, {"not_ready", missing}}));
  out.push_back(CounterOf("gantry_worker_restarts_total", "Copy workers that were replaced",
                          now.worker_restarts));
  out.push_back(CounterOf("gantry_worker_pid_conflicts_total",
                          "Copy workers that were replaced for having the PID of a GPU's user",
                          now.worker_pid_conflicts));
  const auto succeeded = static_cast<double>(now.worker_maps_succeeded);
  const auto failed = static_cast<double>(now.worker_maps_failed);
  out.push_back(Family(MetricType::Counter, "gantry_worker_mappings_total",
                       "Attempts of a copy worker to map an allocation", "outcome",
                       {{"succeeded", succeeded}, {"failed", failed}}));
}

void AppendProcess(std::vector<MetricFamily>& out) {
  const ProcessUsage usage = ReadProcessUsage();
  out.push_back(CounterOf("process_cpu_seconds_total",
                          "User and system CPU time of the sidecar without its copy workers",
                          usage.cpu_seconds));
  out.push_back(GaugeOf("process_start_time_seconds", "Start time of the sidecar in Unix seconds",
                        usage.start_time_unix_seconds));
  out.push_back(GaugeOf("process_resident_memory_bytes", "Resident memory of the sidecar",
                        usage.resident_bytes));
  out.push_back(GaugeOf("process_virtual_memory_bytes", "Virtual memory of the sidecar",
                        usage.virtual_bytes));
  out.push_back(
      GaugeOf("process_open_fds", "Open file descriptors of the sidecar", usage.open_fds));
  out.push_back(GaugeOf("process_max_fds", "Limit of open file descriptors", usage.max_fds));
  out.push_back(CounterOf("gantry_log_lines_dropped_total",
                          "Lines of the sidecar's log that standard error did not take",
                          log::LinesDropped()));
}

}  // namespace

void ScrapeGauges::SetSource(std::function<GaugeSample()> source) {
  const MutexLock lock(mutex_);
  source_ = std::move(source);
}

std::vector<prometheus::MetricFamily> ScrapeGauges::Collect() const {
  GaugeSample now;
  {
    // Under the lock: when SetSource returns, nobody uses the source before it.
    const MutexLock lock(mutex_);
    if (source_) now = source_();
  }
  std::vector<MetricFamily> out;
  out.push_back(Family(MetricType::Gauge, "gantry_build_info", "Always 1, with the version",
                       "version", {{version_, 1}}));
  AppendTables(now, out);
  AppendTcp(now, out);
  AppendRdma(now.rdma, out);
  AppendStaging(now.staging, out);
  AppendWorkers(now, out);
  AppendProcess(out);
  return out;
}

}  // namespace gantry::metrics
