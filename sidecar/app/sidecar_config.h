// Every setting of the sidecar: a flag, an environment variable and a default, read in this one
// place. docs/operations.md explains them. A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/result.h"

namespace gantry {

struct SidecarConfig {
  std::string name;                     // of this sidecar, for peers; default: the host name
  std::string run_dir = "/run/gantry";  // api.sock and handoff.sock for the pod's containers
  std::string node_dir;                 // shared by the sidecars of a trust domain on the node
  std::vector<std::string> node_uids;   // whose sidecars may be there, beside root and this user
  std::string rest_listen;              // loopback "address:port"; empty: Unix socket only
  std::string metrics_listen;           // "address:port" of /metrics; empty: REST only
  std::string health_listen;            // "address:port" of grpc.health.v1; empty: none
  std::string log_level = "info";
  bool print_config = false;
  bool require_slot = false;                             // of the device plugin
  std::string termination_log = "/dev/termination-log";  // empty: none

  // The peer API over TCP, and how its two ends prove who they are.
  std::string peer_listen;  // "address:port"; empty: the node directory alone
  std::string peer_tls_cert;
  std::string peer_tls_key;
  std::string peer_tls_ca;
  std::vector<std::string> peer_tls_names;  // patterns of the certificates that peers show
  std::string peer_rules;                   // file: who may ask for what
  std::string peer_token_file;
  bool peer_plaintext = false;

  // The tcp transport: the connections that carry bytes between peers.
  std::string data_listen;  // "address:port"; empty: the peer API's address, at a free port
  std::string data_host;    // that peers are told; empty: the one that they reached the peer API at
  int data_streams = 4;     // connections to each peer
  int data_threads = 0;     // that carry them; 0: by processors
  bool data_tls = false;
  bool data_no_checksum = false;
  static constexpr uint64_t kStagingBytesMin = 8ull << 20;
  uint64_t staging_bytes = 64ull << 20;  // host memory for bytes of GPUs on their way; 0: none

  // The rdma transport.
  bool no_rdma = false;
  std::vector<std::string> rdma_devices;  // by name; empty: all that have an active port
  std::string rdma_nics = "nearest";      // of these, for a buffer: or "all"
  uint8_t rdma_port = 1;
  int rdma_gid_index = -1;        // -1: chosen
  uint32_t rdma_mtu = 0;          // at most; 0: the port's
  uint64_t rdma_chunk_bytes = 0;  // of a memory region; 0: as the device says
  int rdma_queue_pairs = 2;       // to each peer, for each device
  uint32_t rdma_work_requests = 128;
  uint64_t rdma_slice_bytes = 1ull << 20;  // of a work request
  uint32_t rdma_inline_bytes = 0;          // of a write that is posted inline; 0: none is
  uint8_t rdma_timeout = 14;               // 4.096 us * 2^timeout
  uint8_t rdma_retries = 6;
  uint8_t rdma_traffic_class = 0;
  uint8_t rdma_service_level = 0;
  uint8_t rdma_hop_limit = 64;
  bool rdma_relaxed_ordering = false;

  int workers = 0;       // copy workers; 0: one for each processor, at most 8
  int gpu_workers = -1;  // of these, with a context on a GPU; -1: four, three for each GPU if more
  uint64_t worker_restart_ms_max = 10'000;
  uint64_t gpu_retry_ms = 60'000;   // until a GPU that refused a worker its context is asked again
  std::string gpu_copies = "auto";  // or "engines", "kernel"
  uint64_t spin_us = 0;             // looked for work before sleeping; 0: 50 to 200

  uint64_t body_bytes_max = 8ull << 20;
  uint64_t connections_max = 1024;
  uint64_t http_threads_max = 128;

  uint64_t workloads_max = 256;
  uint64_t buffers_max = 100'000;
  uint64_t fds_max = 0;              // descriptors of workloads; 0: half of RLIMIT_NOFILE
  uint64_t peer_fds_max = 0;         // of peers' memory; as many for them; 0: an eighth of it
  uint64_t workload_end_ms = 1'000;  // to drain what an ended workload leaves behind

  uint64_t transfers_max = 4096;
  uint64_t descriptors_max = 1'048'576;
  uint64_t deadline_ms_default = 30'000;
  uint64_t deadline_ms_max = 3'600'000;
  static constexpr uint64_t kQuiesceMsLimit = 600'000;  // what the peer protocol can say
  uint64_t quiesce_ms_max = 2'000;
  uint64_t chunk_bytes_max = 1ull << 20;
  uint64_t events_max = 65'536;

  uint64_t shutdown_ms = 10'000;  // from SIGTERM until everything is stopped by force
};

enum class ConfigOutcome { kRun, kExit };
struct ParsedConfig {
  SidecarConfig config;
  ConfigOutcome outcome = ConfigOutcome::kRun;
  int exit_code = 0;        // with kExit: --help, --version, --print-config, or a usage error
  std::string usage_error;  // which one
};

// Of the process when its settings, or what it was given, are not what it can run with.
inline constexpr int kExitUsage = 2;

// Writes help, version or the configuration to standard output, and usage errors to standard error.
ParsedConfig ParseSidecarConfig(int argc, const char* const* argv);

}  // namespace gantry
