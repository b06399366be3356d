#include "sidecar/api/status_endpoint.h"

#include <array>
#include <chrono>

#include "lib/base/random_id.h"
#include "sidecar/api/buffer_view.h"
#include "sidecar/api/openapi_text.h"
#include "sidecar/api/peers_endpoint.h"
#include "sidecar/api/request_reading.h"
#include "sidecar/api/transfer_view.h"

namespace gantry::api {
namespace {

constexpr size_t kDebugMax = 1'000;
constexpr std::string_view kPlainText = "text/plain; charset=utf-8";
constexpr std::array<std::string_view, 6> kCapabilities = {
    "cbor", "block_layout", "suspend", "server_sent_events", "require_path", "executor"};

int64_t UnixMilliseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

void WriteIdentity(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Field("name", status.name)
      .Field("version", status.version)
      .Field("generation", HexOf(status.generation))
      .Field("node_id", status.node_id)
      .OptionalField("peer_address", status.peer_address)
      .OptionalField("tcp_address", status.tcp_address);
}

void WriteLimits(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Key("limits").BeginObject();
  for (const auto& [name, value] : status.limits) writer->Field(name, value);
  writer->EndObject();
}

void WriteWorkers(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Key("workers").BeginList();
  for (const WorkerView& worker : status.workers) {
    writer->BeginObject()
        .Field("index", worker.index)
        .Field("pid", worker.pid)
        .Field("state", worker.state)
        .Field("gpu", worker.gpu)
        .OptionalField("no_gpu_because", worker.no_gpu_because)
        .Field("asks_for_gpu", worker.asks_for_gpu)
        .Field("restarts", worker.restarts)
        .Field("mappings", worker.mappings)
        .EndObject();
  }
  writer->EndList();
}

void WriteCosts(const GpuView& gpu, wire::BodyWriter* writer) {
  writer->Key("copy_costs").BeginObject();
  for (const GpuView::Cost& cost : gpu.copy_costs) {
    writer->Key(cost.name)
        .BeginObject()
        .Field("value", cost.value)
        .Field("origin", cost.origin)
        .EndObject();
  }
  writer->EndObject();
}

void WriteGpus(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Key("gpus").BeginList();
  for (const GpuView& gpu : status.gpus) {
    writer->BeginObject()
        .Field("uuid", gpu.uuid)
        .Field("workers", gpu.workers)
        .Field("free_bytes", gpu.free_bytes)
        .Field("bytes", gpu.bytes)
        .Field("reaches", gpu.reaches);
    WriteCosts(gpu, writer);
    writer->EndObject();
  }
  writer->EndList();
}

void WriteRdmaDevices(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Key("rdma_devices").BeginList();
  for (const RdmaDeviceView& device : status.rdma_devices) {
    writer->BeginObject()
        .Field("name", device.name)
        .Field("takes_dma_bufs", device.no_dma_buf_because.empty())
        .OptionalField("no_dma_buf_because", device.no_dma_buf_because)
        .EndObject();
  }
  writer->EndList();
}

void WritePod(const StatusInfo& status, wire::BodyWriter* writer) {
  writer->Key("pod")
      .BeginObject()
      .OptionalField("name", status.pod.name)
      .OptionalField("namespace", status.pod.pod_namespace);
  if (const auto& slot = status.pod.slot) {
    writer->Key("slot")
        .BeginObject()
        .Field("id", slot->id)
        .OptionalField("container", slot->container)
        .Field("gpus", slot->gpus)
        .Field("peer_gpus", slot->peer_gpus)
        .Field("rdma_devices", slot->rdma_devices)
        .EndObject();
  }
  writer->Key("findings").BeginList();
  for (const pod::Finding& finding : status.findings) {
    writer->BeginObject()
        .Field("level", NameOf(finding.level))
        .Field("subject", finding.subject)
        .Field("said", finding.said)
        .Field("advice", finding.advice)
        .EndObject();
  }
  writer->EndList().EndObject();
}

void WriteTotals(const ApiDependencies& api, wire::BodyWriter* writer) {
  const registry::RegistryTotals registry = api.buffers.Totals();
  const engine::EngineTotals engine = api.transfers.Totals();
  writer->Key("totals")
      .BeginObject()
      .Field("buffers", registry.buffers)
      .Field("allocations", registry.allocations)
      .Field("registered_bytes", registry.registered_bytes)
      .Field("mapped_bytes", registry.mapped_bytes)
      .Field("transfers_queued", engine.queued)
      .Field("transfers_running", engine.running)
      .Field("bytes_inflight", engine.bytes_inflight)
      .Field("last_event", api.events.last_sequence())
      .EndObject();
}

void WriteWorkloads(const ApiDependencies& api, wire::BodyWriter* writer) {
  writer->Key("workloads").BeginList();
  for (const registry::WorkloadInfo& workload : api.workloads.List()) {
    writer->BeginObject()
        .Field("name", workload.name)
        .Field("engine_id", workload.engine_id)
        .Field("generation", HexOf(workload.generation))
        .Field("attached", workload.attached)
        .Field("pid", workload.pid)
        .Field("fds_held", workload.fds_held)
        .EndObject();
  }
  writer->EndList();
}

http::Response Text(std::string_view content_type, std::string body) {
  http::Response response;
  response.content_type = content_type;
  response.body = std::move(body);
  return response;
}

}  // namespace

Result<http::Response> GetStatus(const ApiDependencies& api, const http::Request& request) {
  const StatusInfo status = api.status();
  const Status ready = api.readiness();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WriteIdentity(status, &writer);
  writer.Field("ready", ready.has_value())
      .OptionalField("not_ready_because", ready ? std::string() : ready.error().message)
      .Field("pid", status.pid)
      .Field("started_unix_ms", status.started_unix_ms)
      .Field("uptime_ms", UnixMilliseconds() - status.started_unix_ms)
      .Field("handoff_socket", status.handoff_socket);
  WritePod(status, &writer);
  WriteWorkers(status, &writer);
  writer.Field("worker_pid_conflicts", status.worker_pid_conflicts);
  WriteGpus(status, &writer);
  WriteRdmaDevices(status, &writer);
  WritePaths(api.transfers.Paths(), &writer);
  WriteTotals(api, &writer);
  WriteLimits(status, &writer);
  WritePeers(api, &writer);
  WriteWorkloads(api, &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> GetInfo(const ApiDependencies& api, const http::Request& request) {
  const StatusInfo status = api.status();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WriteIdentity(status, &writer);
  WritePaths(api.transfers.Paths(), &writer);
  WriteLimits(status, &writer);
  writer.Key("memory_kinds").BeginList();
  for (const wire::MemoryKind kind : wire::kMemoryKinds) writer.Text(NameOf(kind));
  writer.EndList();
  writer.Field("capabilities", kCapabilities).EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DebugBuffers(const ApiDependencies& api, const http::Request& request) {
  const std::vector<wire::PathReport> paths = api.transfers.Paths();
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("buffers").BeginList();
  for (const auto& buffer : api.buffers.List({}, {}, kDebugMax)) {
    WriteBuffer(*buffer, paths, &writer);
  }
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DebugTransfers(const ApiDependencies& api, const http::Request& request) {
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject().Key("transfers").BeginList();
  for (const auto& transfer : api.transfers.List({}, /*active_only=*/false, kDebugMax)) {
    WriteTransfer(transfer, &writer);
  }
  writer.EndList().EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> DebugPeers(const ApiDependencies& api, const http::Request& request) {
  return ListPeers(api, request);
}

Result<http::Response> DebugWorkers(const ApiDependencies& api, const http::Request& request) {
  wire::BodyWriter writer = WriterFor(request);
  writer.BeginObject();
  WriteWorkers(api.status(), &writer);
  writer.EndObject();
  return Reply(request, 200, std::move(writer));
}

Result<http::Response> GetMetrics(const ApiDependencies& api, const http::Request&) {
  return Text("text/plain; version=0.0.4; charset=utf-8", api.metrics.Text());
}

Result<http::Response> GetHealth(const ApiDependencies& api, const http::Request&) {
  RETURN_IF_ERROR(api.liveness());
  return Text(kPlainText, "ok\n");
}

Result<http::Response> GetReadiness(const ApiDependencies& api, const http::Request&) {
  RETURN_IF_ERROR(api.readiness());
  return Text(kPlainText, "ready\n");
}

Result<http::Response> GetOpenApi(const ApiDependencies&, const http::Request&) {
  return Text("application/yaml", std::string(OpenApiText()));
}

}  // namespace gantry::api
