// Every setting of the sidecar: a flag, an environment variable and a default, all read here.
// docs/operations.md explains them. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/wire/session_times.h"

namespace gantry {

struct SidecarConfig {
  std::string name;                     // shown to peers; default: the host name
  std::string run_dir = "/run/gantry";  // api.sock and handoff.sock for the pod's containers
  std::string node_dir;                 // shared by the node's sidecars of one trust domain
  // Users whose sidecars may be there, beside root and this user.
  std::vector<std::string> node_uids;
  std::string rest_listen;     // loopback "address:port"; empty: Unix socket only
  std::string metrics_listen;  // "address:port" of /metrics; empty: REST only
  std::string health_listen;   // "address:port" of grpc.health.v1; empty: none
  std::string log_level = "info";
  bool print_config = false;
  bool require_slot = false;  // the device plugin must have assigned a slot
  std::string termination_log = "/dev/termination-log";  // empty: none

  // The peer API over TCP, and how both ends authenticate.
  std::string peer_listen;  // "address:port"; empty: node directory only
  std::string peer_tls_cert;
  std::string peer_tls_key;
  std::string peer_tls_ca;
  std::vector<std::string> peer_tls_names;  // name patterns for peers' certificates
  std::string peer_rules;                   // file: which peer may access what
  std::string peer_token_file;
  bool peer_plaintext = false;

  // The tcp transport: connections that carry bytes between peers.
  std::string data_listen;  // "address:port"; empty: the peer API's address, at a free port
  // The host that peers are told; empty: the one at which they reached the peer API.
  std::string data_host;
  int data_streams = 4;  // connections per peer
  int data_threads = 0;  // threads for them; 0: by number of processors
  bool data_tls = false;
  bool data_no_checksum = false;
  static constexpr uint64_t kStagingBytesMin = 8ull << 20;
  uint64_t staging_bytes = 64ull << 20;  // host memory for staging GPU bytes; 0: none

  // The rdma transport.
  bool no_rdma = false;
  std::vector<std::string> rdma_devices;  // names; empty: all with an active port
  std::string rdma_nics = "nearest";      // devices per buffer: "nearest" or "all"
  uint8_t rdma_port = 1;
  int rdma_gid_index = -1;        // -1: chosen
  uint32_t rdma_mtu = 0;          // upper limit; 0: the port's
  uint64_t rdma_chunk_bytes = 0;  // per memory region; 0: the device's limit
  int rdma_queue_pairs = 2;       // per peer and device
  uint32_t rdma_work_requests = 128;
  uint64_t rdma_slice_bytes = 1ull << 20;  // per work request
  uint32_t rdma_inline_bytes = 0;          // longest inline write; 0: none
  uint8_t rdma_timeout = 14;               // 4.096 us * 2^timeout
  uint8_t rdma_retries = 6;
  uint8_t rdma_traffic_class = 0;
  uint8_t rdma_service_level = 0;
  uint8_t rdma_hop_limit = 64;
  bool rdma_relaxed_ordering = false;

  int workers = 0;  // copy workers; 0: one for each processor, at most 8
  // The number of workers with a GPU context; -1: four, or three per GPU if that is more.
  int gpu_workers = -1;
  uint64_t worker_restart_ms_max = 10'000;
  uint64_t gpu_retry_ms = 60'000;   // delay before a refused GPU context is requested again
  std::string gpu_copies = "auto";  // or "engines", "kernel"
  uint64_t spin_us = 0;             // polling before sleeping; 0: 100, HTTP 400

  uint64_t body_bytes_max = 8ull << 20;
  uint64_t connections_max = 1024;
  uint64_t http_threads_max = 128;

  uint64_t workloads_max = 256;
  uint64_t buffers_max = 100'000;
  uint64_t fds_max = 0;              // for descriptors of workloads; 0: half of RLIMIT_NOFILE
  uint64_t peer_fds_max = 0;         // for peers' memory, and again for peers; 0: an eighth
  uint64_t workload_end_ms = 1'000;  // to drain the memory of an ended workload

  uint64_t transfers_max = 4096;
  uint64_t descriptors_max = 1'048'576;
  uint64_t deadline_ms_default = 30'000;
  uint64_t deadline_ms_max = 3'600'000;
  static constexpr uint64_t kQuiesceMsLimit = 600'000;  // limit of the peer protocol
  uint64_t quiesce_ms_max = wire::kQuiesceMax.count();
  uint64_t chunk_bytes_max = 1ull << 20;
  uint64_t events_max = 65'536;

  uint64_t shutdown_ms = 10'000;  // from SIGTERM until everything is stopped by force
};

enum class ConfigOutcome { kRun, kExit };
struct ParsedConfig {
  SidecarConfig config;
  ConfigOutcome outcome = ConfigOutcome::kRun;
  int exit_code = 0;        // with kExit: --help, --version, --print-config, or a usage error
  std::string usage_error;  // text of the usage error
};

// Exit code when the process cannot run with its settings or its resources.
inline constexpr int kExitUsage = 2;

// Writes help, version or the configuration to standard output, and usage errors to standard error.
ParsedConfig ParseSidecarConfig(int argc, const char* const* argv);

}  // namespace gantry
