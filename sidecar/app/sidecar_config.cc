#include "sidecar/app/sidecar_config.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <iostream>
#include <utility>

#include "lib/base/host_port.h"
#include "lib/base/name.h"
#include "lib/base/uid_set.h"
#include "lib/base/version.h"

namespace gantry {
namespace {

// CLI11 takes -1 for a large unsigned number where no range is checked.
constexpr uint64_t kNumberMax = uint64_t{1} << 62;
// A year: in nanoseconds it is a number still.
constexpr uint64_t kMillisecondsMax = uint64_t{1000} * 3600 * 24 * 365;

std::string HostName() {
  std::array<char, 256> name = {};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "gantry";
  return name.data();
}

// --run-dir is also GANTRY_RUN_DIR.
std::string EnvironmentName(const std::string& flag) {
  std::string name = "GANTRY_";
  for (const char c : flag.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& flag, T& value, const std::string& text) {
  CLI::Option* const option =
      app.add_option(flag, value, text)->envname(EnvironmentName(flag))->capture_default_str();
  if constexpr (std::is_same_v<T, uint8_t>) {
    option->default_str(std::to_string(value));  // CLI11 would print it as a character
  }
  return option;
}

void AddPlaces(CLI::App& app, SidecarConfig& config) {
  Add(app, "--name", config.name, "name of this sidecar, unique in the node directory");
  Add(app, "--run-dir", config.run_dir, "directory of api.sock and handoff.sock");
  Add(app, "--node-dir", config.node_dir,
      "directory that the node's sidecars share (peer sockets); empty: no peers");
  Add(app, "--node-uids", config.node_uids,
      "users, beside this one and root, whose sidecars in the node directory are peers: numbers "
      "and "
      "ranges (1000-1999) with commas between")
      ->delimiter(',');
  Add(app, "--rest-listen", config.rest_listen,
      "loopback address:port for REST beside the Unix socket; empty: none");
  Add(app, "--metrics-listen", config.metrics_listen,
      "address:port for /metrics alone; empty: none");
  Add(app, "--health-listen", config.health_listen,
      "address:port for grpc.health.v1 alone, in plaintext; empty: none");
  Add(app, "--log-level", config.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_flag("--require-slot", config.require_slot,
               "do not start without a slot of the device plugin")
      ->envname(EnvironmentName("--require-slot"));
  Add(app, "--termination-log", config.termination_log,
      "file, if it is there, for why the process ends; empty: none");
  app.add_flag("--print-config", config.print_config, "print every setting and exit");
}

void AddPeers(CLI::App& app, SidecarConfig& config) {
  Add(app, "--peer-listen", config.peer_listen,
      "address:port for the peer API over TCP; empty: none");
  Add(app, "--peer-tls-cert", config.peer_tls_cert,
      "PEM certificate, with its intermediates, that peers are shown; read again when replaced");
  Add(app, "--peer-tls-key", config.peer_tls_key, "PEM private key of --peer-tls-cert");
  Add(app, "--peer-tls-ca", config.peer_tls_ca,
      "PEM bundle of the authorities that sign peers' certificates");
  Add(app, "--peer-tls-names", config.peer_tls_names,
      "patterns of the names that a peer's certificate may have, with commas between; empty: the "
      "host it was reached at")
      ->delimiter(',');
  Add(app, "--peer-rules", config.peer_rules,
      "file of lines 'certificate-name workloads read,write'; empty: peers may have what buffers "
      "grant");
  Add(app, "--peer-token-file", config.peer_token_file,
      "file of the token that the peers of one trust domain share");
  app.add_flag("--peer-plaintext", config.peer_plaintext,
               "let the token travel unencrypted beyond loopback")
      ->envname(EnvironmentName("--peer-plaintext"));
  Add(app, "--data-listen", config.data_listen,
      "address:port for the bytes of peers' transfers over TCP; empty: the address of "
      "--peer-listen, at a free port");
  Add(app, "--data-host", config.data_host,
      "host that peers are told to connect to; empty: the one that they reached the peer API at");
  Add(app, "--data-streams", config.data_streams, "connections to each peer over TCP")
      ->check(CLI::Range(1, 32));
  Add(app, "--data-threads", config.data_threads,
      "threads that move bytes over TCP; 0: one for each connection to a peer, within half of the "
      "processors, and two at least")
      ->check(CLI::Range(0, 32));
  app.add_flag("--data-tls", config.data_tls,
               "encrypt the bytes that go over TCP, with the certificates of the peer API; peers "
               "that do not are refused")
      ->envname(EnvironmentName("--data-tls"));
  app.add_flag("--data-no-checksum", config.data_no_checksum,
               "do not protect the bytes that go over TCP by CRC32C")
      ->envname(EnvironmentName("--data-no-checksum"));
  Add(app, "--staging-bytes", config.staging_bytes,
      "host memory, pinned for the GPUs, that their bytes go through over TCP; 0: none, and memory "
      "of GPUs has no way over TCP")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 36));
}

void AddLimits(CLI::App& app, SidecarConfig& config) {
  const auto positive = CLI::Range(uint64_t{1}, kNumberMax);
  const auto time = CLI::Range(uint64_t{1}, kMillisecondsMax);
  Add(app, "--workers", config.workers, "copy workers; 0: one a processor, at most 8")
      ->check(CLI::Range(0, 64));
  Add(app, "--gpu-workers", config.gpu_workers,
      "of these, how many take a context on a GPU; -1: four, or three for each GPU if that is more")
      ->check(CLI::Range(-1, 64));
  Add(app, "--gpu-retry-ms", config.gpu_retry_ms,
      "until a worker asks a GPU again that was short of memory for its context; doubles up to ten "
      "times as long")
      ->check(CLI::Range(uint64_t{1}, uint64_t{3'600'000}));
  Add(app, "--gpu-copies", config.gpu_copies,
      "what copies between GPUs: copy engines, a kernel, or what is best for each transfer")
      ->check(CLI::IsMember({"auto", "engines", "kernel"}));
  Add(app, "--spin-us", config.spin_us,
      "how long threads and copy workers look for more work before they sleep; 0: 100, HTTP "
      "threads 400")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1'000'000}));
  Add(app, "--worker-restart-ms-max", config.worker_restart_ms_max,
      "longest pause between restarts of a copy worker")
      ->check(time);
  Add(app, "--body-bytes-max", config.body_bytes_max, "largest request body")->check(positive);
  Add(app, "--connections-max", config.connections_max, "open REST connections")->check(positive);
  Add(app, "--http-threads-max", config.http_threads_max, "requests served at the same time")
      ->check(CLI::Range(uint64_t{4}, uint64_t{4096}));
  Add(app, "--workloads-max", config.workloads_max, "registered workloads")->check(positive);
  Add(app, "--buffers-max", config.buffers_max, "registered buffers")->check(positive);
  Add(app, "--fds-max", config.fds_max,
      "descriptors held for workloads; 0: half of the process's limit, less 128")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  Add(app, "--peer-fds-max", config.peer_fds_max,
      "descriptors of peers' memory held here, and as many that wait for peers to fetch them; 0: "
      "an "
      "eighth of the process's limit")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  Add(app, "--workload-end-ms", config.workload_end_ms,
      "time to drain the buffers of a workload that ended")
      ->check(time);
  Add(app, "--transfers-max", config.transfers_max, "transfers that are not finished")
      ->check(positive);
  Add(app, "--descriptors-max", config.descriptors_max, "descriptors of one transfer")
      ->check(positive);
  Add(app, "--deadline-ms-default", config.deadline_ms_default, "of a transfer that names none")
      ->check(time);
  Add(app, "--deadline-ms-max", config.deadline_ms_max, "the longest deadline")->check(time);
  Add(app, "--quiesce-ms-max", config.quiesce_ms_max,
      "after a deadline or a cancel, until copy workers are ended by force")
      ->check(CLI::Range(uint64_t{1}, SidecarConfig::kQuiesceMsLimit));
  Add(app, "--chunk-bytes-max", config.chunk_bytes_max, "a longer run is cut")->check(positive);
  Add(app, "--events-max", config.events_max, "events kept for polling")->check(positive);
  Add(app, "--shutdown-ms", config.shutdown_ms, "from SIGTERM until everything stops by force")
      ->check(time);
}

void AddRdmaOptions(CLI::App& app, SidecarConfig& config) {
  app.add_flag("--no-rdma", config.no_rdma, "use no RDMA device, even if there are some")
      ->envname(EnvironmentName("--no-rdma"));
  Add(app, "--rdma-devices", config.rdma_devices,
      "names of the RDMA devices to use, with commas between, all of which have to be there; "
      "empty: "
      "all with an active port")
      ->delimiter(',');
  Add(app, "--rdma-nics", config.rdma_nics,
      "which of them a buffer is registered on: those nearest to its memory, or all")
      ->check(CLI::IsMember({"nearest", "all"}));
  Add(app, "--rdma-port", config.rdma_port, "port of each device")->check(CLI::Range(1, 254));
  Add(app, "--rdma-gid-index", config.rdma_gid_index, "GID of each device; -1: chosen")
      ->check(CLI::Range(-1, 255));
  Add(app, "--rdma-mtu", config.rdma_mtu,
      "largest payload of a packet, where the port's active MTU is no less; 0: the port's")
      ->check(CLI::IsMember({0, 256, 512, 1024, 2048, 4096}));
  Add(app, "--rdma-chunk-bytes", config.rdma_chunk_bytes,
      "largest memory region, also beyond what the device tells; 0: as the device tells")
      ->check(CLI::Range(uint64_t{0}, kNumberMax));
  Add(app, "--rdma-queue-pairs", config.rdma_queue_pairs,
      "queue pairs to each peer for each device; with all devices 256 at most")
      ->check(CLI::Range(1, 16));
  Add(app, "--rdma-work-requests", config.rdma_work_requests, "in flight in each queue pair")
      ->check(CLI::Range(4, 8192));
  Add(app, "--rdma-slice-bytes", config.rdma_slice_bytes, "largest work request")
      ->check(CLI::Range(uint64_t{4096}, uint64_t{1} << 30));
  Add(app, "--rdma-inline-bytes", config.rdma_inline_bytes,
      "writes of host memory up to this length are read by this process and not by the device; 0: "
      "none")
      ->check(CLI::Range(0, 1024));
  Add(app, "--rdma-timeout", config.rdma_timeout,
      "local ACK timeout of the queue pairs: 4.096 us * 2^timeout")
      ->check(CLI::Range(1, 31));
  Add(app, "--rdma-retries", config.rdma_retries,
      "until a peer's device that does not answer is lost")
      ->check(CLI::Range(0, 7));
  Add(app, "--rdma-traffic-class", config.rdma_traffic_class, "of the packets")
      ->check(CLI::Range(0, 255));
  Add(app, "--rdma-service-level", config.rdma_service_level, "of the packets")
      ->check(CLI::Range(0, 15));
  Add(app, "--rdma-hop-limit", config.rdma_hop_limit, "of the packets")->check(CLI::Range(1, 255));
  app.add_flag("--rdma-relaxed-ordering", config.rdma_relaxed_ordering,
               "let devices write in any order within a transfer")
      ->envname(EnvironmentName("--rdma-relaxed-ordering"));
}

Status CheckAddress(const std::string& flag, const std::string& value) {
  if (value.empty() || ParseHostPort(value)) return {};
  return Fail(ErrorCode::kInvalidArgument, flag + ": '" + value + "' is no address with a port",
              "write 127.0.0.1:7580 or [::1]:7580; 0.0.0.0:7580 is every address of IPv4, and "
              "[::]:7580 of IPv6, too");
}

Status CheckTogether(const SidecarConfig& config) {
  RETURN_IF_ERROR(CheckAddress("--rest-listen", config.rest_listen));
  RETURN_IF_ERROR(CheckAddress("--metrics-listen", config.metrics_listen));
  RETURN_IF_ERROR(CheckAddress("--health-listen", config.health_listen));
  RETURN_IF_ERROR(CheckAddress("--peer-listen", config.peer_listen));
  RETURN_IF_ERROR(CheckAddress("--data-listen", config.data_listen));
  if (config.deadline_ms_default > config.deadline_ms_max) {
    return Fail(ErrorCode::kInvalidArgument,
                "--deadline-ms-default (" + std::to_string(config.deadline_ms_default) +
                    ") is larger than --deadline-ms-max (" +
                    std::to_string(config.deadline_ms_max) + ")",
                "set both");
  }
  if (Status name = CheckName(config.name, ""); !name) {
    return Fail(std::move(name).error().WithContext("--name"));
  }
  if (config.staging_bytes != 0 && config.staging_bytes < SidecarConfig::kStagingBytesMin) {
    return Fail(ErrorCode::kInvalidArgument, "--staging-bytes is less than " +
                                                 std::to_string(SidecarConfig::kStagingBytesMin) +
                                                 ", which the largest requests of peers need");
  }
  if (auto uids = UidSet::Parse(config.node_uids); !uids) {
    return Fail(std::move(uids).error().WithContext("--node-uids"));
  }
  return {};
}

}  // namespace

ParsedConfig ParseSidecarConfig(int argc, const char* const* argv) {
  ParsedConfig parsed;
  SidecarConfig& config = parsed.config;
  config.name = HostName();
  CLI::App app("Gantry sidecar: moves memory between inference pods", "gantry-sidecar");
  app.set_version_flag("--version", std::string(Version()));
  AddPlaces(app, config);
  AddPeers(app, config);
  AddLimits(app, config);
  AddRdmaOptions(app, config);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.outcome = ConfigOutcome::kExit;
    if (app.exit(error) == 0) return parsed;
    parsed.exit_code = kExitUsage;
    parsed.usage_error = error.what();
    return parsed;
  }
  if (auto status = CheckTogether(config); !status) {
    std::cerr << "gantry-sidecar: " << status.error().message << "\n";
    if (!status.error().hint.empty()) std::cerr << "  " << status.error().hint << "\n";
    parsed.outcome = ConfigOutcome::kExit;
    parsed.exit_code = kExitUsage;
    parsed.usage_error = status.error().message;
  } else if (config.print_config) {
    std::cout << app.config_to_str(/*default_also=*/true, /*write_description=*/false);
    parsed.outcome = ConfigOutcome::kExit;
    if (!std::cout.flush()) {
      std::cerr << "gantry-sidecar: standard output cannot be written to\n";
      parsed.exit_code = 1;
    }
  }
  return parsed;
}

}  // namespace gantry
