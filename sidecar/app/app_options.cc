#include "sidecar/app/app_options.h"

#include <algorithm>
#include <thread>

namespace gantry {
namespace {

constexpr int kWorkersByDefaultMax = 8;
int WorkerCount(const SidecarConfig& config) {
  if (config.workers > 0) return config.workers;
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(processors, 1, kWorkersByDefaultMax);
}

microseconds SpinOf(const SidecarConfig& config, microseconds by_default) {
  return config.spin_us == 0 ? by_default : microseconds(static_cast<int64_t>(config.spin_us));
}

}  // namespace

milliseconds Millis(uint64_t value) { return milliseconds(static_cast<int64_t>(value)); }

worker::WorkerPoolOptions WorkerOptionsOf(const SidecarConfig& config) {
  worker::WorkerPoolOptions options;
  options.workers = WorkerCount(config);
  options.gpu_workers = config.gpu_workers;
  options.log_level = config.log_level;
  options.spin = SpinOf(config, options.spin);
  options.restart_backoff_max_ms = Millis(config.worker_restart_ms_max);
  options.gpu_retry_min_ms = Millis(config.gpu_retry_ms);
  options.gpu_retry_max_ms = 10 * options.gpu_retry_min_ms;
  if (config.unsealed_memory) options.unsealed = memory::Unsealed::kTaken;
  options.measures_costs = config.gpu_copies == "auto";  // the others go by none
  options.costs = worker::ParseCosts(config.gpu_copy_costs).value_or(worker::GpuCosts());
  return options;
}

engine::EngineOptions EngineOptionsOf(const SidecarConfig& config) {
  engine::EngineOptions options;
  options.transfers_max = config.transfers_max;
  options.descriptors_max = config.descriptors_max;
  options.deadline_default = Millis(config.deadline_ms_default);
  options.deadline_max = Millis(config.deadline_ms_max);
  options.quiesce_max = Millis(config.quiesce_ms_max);
  options.driver_spin = SpinOf(config, options.driver_spin);
  options.chunk_bytes_max = config.chunk_bytes_max;
  return options;
}

// Each has a connection for its lease, and some more are there for those that come.
size_t WorkloadsMax(const SidecarConfig& config, const FdBudgets& fds_max) {
  return std::min<size_t>(config.workloads_max, fds_max.handoff_connections * 3 / 4);
}

http::HttpServerOptions HttpOptionsOf(const SidecarConfig& config, const FdBudgets& fds_max,
                                      const RunDirectory& directory) {
  http::HttpServerOptions options;
  options.unix_path = directory.File("api.sock");
  options.tcp_address = config.rest_listen;
  options.connections_max = fds_max.rest_connections;
  // Requests that wait hold a thread each, and their connections: a quarter is left for others.
  options.threads_max =
      std::max<size_t>(options.threads_min,
                       std::min<size_t>(config.http_threads_max, options.connections_max * 3 / 4));
  options.connections_hint =
      "close what is not needed, or raise --connections-max, which is a thirteenth of the "
      "process's "
      "limit of descriptors (" +
      std::to_string(fds_max.limit) + ") at most";
  options.connection.input_spin = SpinOf(config, options.connection.input_spin);
  options.connection.framing.body_bytes_max = config.body_bytes_max;
  return options;
}

size_t AskedWaitsMax(const http::HttpServerOptions& options) {
  return std::max<size_t>(1, options.threads_max * 3 / 4);
}

std::vector<std::pair<std::string, uint64_t>> LimitsOf(const SidecarConfig& config,
                                                       const FdBudgets& fds_max) {
  return {{"body_bytes_max", config.body_bytes_max},
          {"buffers_max", config.buffers_max},
          {"chunk_bytes_max", config.chunk_bytes_max},
          {"connections_max", fds_max.rest_connections},
          {"deadline_ms_default", config.deadline_ms_default},
          {"deadline_ms_max", config.deadline_ms_max},
          {"descriptors_max", config.descriptors_max},
          {"fds_max", fds_max.workloads},
          {"peer_fds_max", fds_max.peers},
          {"quiesce_ms_max", config.quiesce_ms_max},
          {"transfers_max", config.transfers_max},
          {"workloads_max", WorkloadsMax(config, fds_max)}};
}

}  // namespace gantry
