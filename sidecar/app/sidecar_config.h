// The values of the sidecar's settings, with their defaults. settings.h has the table that says
// what each one is for. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/session_times.h"

namespace gantry {

struct SidecarConfig {
  std::string name;
  std::string run_dir = "/run/gantry";
  std::string node_dir;
  std::vector<std::string> node_uids;
  std::string rest_listen;
  std::string metrics_listen;
  std::string health_listen;
  std::string log_level = "info";
  bool print_config = false;
  bool require_slot = false;
  std::string termination_log = "/dev/termination-log";

  // The peer API over TCP, and how both ends authenticate.
  std::string peer_listen;
  std::string peer_tls_cert;
  std::string peer_tls_key;
  std::string peer_tls_ca;
  std::vector<std::string> peer_tls_names;
  std::string peer_rules;
  std::string peer_token_file;
  bool peer_plaintext = false;

  // The tcp transport: connections that carry bytes between peers.
  std::string data_listen;
  std::string data_host;
  int data_streams = 4;
  int data_threads = 0;
  bool data_tls = false;
  bool data_no_checksum = false;
  static constexpr uint64_t kStagingBytesMin = 8ull << 20;
  uint64_t staging_bytes = 64ull << 20;

  // The rdma transport.
  bool no_rdma = false;
  std::vector<std::string> rdma_devices;
  std::string rdma_nics = "nearest";
  uint8_t rdma_port = 1;
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
  uint64_t rdma_chunk_bytes = 0;
  int rdma_queue_pairs = 2;
  uint32_t rdma_work_requests = 128;
  uint64_t rdma_slice_bytes = 1ull << 20;
  uint32_t rdma_inline_bytes = 0;
  uint8_t rdma_timeout = 14;
  uint8_t rdma_retries = 6;
  uint8_t rdma_traffic_class = 0;
  uint8_t rdma_service_level = 0;
  uint8_t rdma_hop_limit = 64;
  bool rdma_relaxed_ordering = false;

  bool unsealed_memory = false;
  int workers = 0;
  int gpu_workers = -1;
  uint64_t worker_restart_ms_max = 10'000;
  uint64_t gpu_retry_ms = 60'000;
  std::string gpu_copies = "auto";
  std::vector<std::string> gpu_copy_costs;
  uint64_t spin_us = 0;  // polling before sleeping; 0: 100, and 400 for HTTP threads

  uint64_t body_bytes_max = 8ull << 20;
  uint64_t connections_max = 1024;
  uint64_t http_threads_max = 128;

  uint64_t workloads_max = 256;
  uint64_t buffers_max = 100'000;
  uint64_t fds_max = 0;
  uint64_t peer_fds_max = 0;
  uint64_t workload_end_ms = 1'000;

  uint64_t transfers_max = 4096;
  uint64_t descriptors_max = 1'048'576;
  uint64_t deadline_ms_default = 30'000;
  uint64_t deadline_ms_max = 3'600'000;
  static constexpr uint64_t kQuiesceMsLimit = 600'000;  // limit of the peer protocol
  uint64_t quiesce_ms_max = wire::kQuiesceMax.count();
  uint64_t chunk_bytes_max = 1ull << 20;
  uint64_t events_max = 65'536;

  uint64_t shutdown_ms = 10'000;
};

enum class ConfigOutcome { kRun, kExit };
struct ParsedConfig {
  SidecarConfig config;
  ConfigOutcome outcome = ConfigOutcome::kRun;
  int exit_code = 0;        // with kExit: --help, --version, --print-..., or a usage error
  std::string usage_error;  // text of the usage error
};

// Exit code when the process cannot run with its settings or its resources.
inline constexpr int kExitUsage = 2;

// Writes what --help, --version, --print-config or --print-settings asks for to standard output,
// and usage errors to standard error.
ParsedConfig ParseSidecarConfig(int argc, const char* const* argv);

}  // namespace gantry
