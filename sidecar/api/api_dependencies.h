// The objects that the endpoints use. The wiring owns them; all outlive the server. Thread-safe,
// because every member is.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/result.h"
#include "sidecar/api/asked_waits.h"
#include "sidecar/messaging/event_log.h"
#include "sidecar/messaging/hold_table.h"
#include "sidecar/messaging/notification_center.h"
#include "sidecar/metrics/metrics.h"
#include "sidecar/pod/pod_config.h"
#include "sidecar/pod/slot_check.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/registry/workload_table.h"
#include "sidecar/remote/peer_control.h"
#include "sidecar/transfer/transfer_engine.h"

namespace gantry::api {

struct WorkerView {
  int index = 0;
  pid_t pid = 0;
  std::string state;  // "ready", "starting", "lost"
  std::string gpu;    // UUID; empty: it copies no GPU memory
  std::string no_gpu_because;
  bool asks_for_gpu = false;  // its GPU refused a context; it will try again
  uint64_t restarts = 0;
  uint64_t mappings = 0;
};

// A GPU that the workers see.
struct GpuView {
  std::string uuid;
  uint64_t workers = 0;  // workers with a context on it
  // Measured when these workers got their contexts; 0: no worker has one.
  uint64_t free_bytes = 0;
  uint64_t bytes = 0;
  std::vector<std::string> reaches;  // GPUs whose memory its kernels may access
  // The costs from which the means of its copies are chosen.
  struct Cost {
    std::string_view name;  // with the unit
    uint64_t value = 0;
    std::string_view origin;  // "measured", "set", "fallback"
  };
  std::vector<Cost> copy_costs;
};

// An RDMA device in use.
struct RdmaDeviceView {
  std::string name;
  std::string no_dma_buf_because;  // empty: it accepts dma-bufs, and so reaches GPU memory
};

// Facts that only the wiring knows.
struct StatusInfo {
  std::string version;
  uint64_t generation = 0;  // new at every start of this sidecar
  std::string node_id;      // boot id
  std::string name;
  std::string handoff_socket;
  std::string peer_address;  // where peers reach this sidecar; may be empty
  std::string tcp_address;   // where it listens for peers of other nodes; empty: not at all
  pod::PodConfig pod;
  pod::Findings findings;  // from checking what the pod was given
  pid_t pid = 0;
  int64_t started_unix_ms = 0;
  std::vector<WorkerView> workers;
  std::vector<GpuView> gpus;
  std::vector<RdmaDeviceView> rdma_devices;
  uint64_t worker_pid_conflicts = 0;
  bool takes_unsealed_memory = false;                    // host memory whose file can shrink
  std::vector<std::pair<std::string, uint64_t>> limits;  // name with unit, value
};

struct ApiDependencies {
  registry::WorkloadTable& workloads;
  registry::BufferRegistry& buffers;
  engine::TransferEngine& transfers;
  engine::EventLog& events;
  metrics::Metrics& metrics;
  AskedWaits& waits;
  engine::PeerControl* peers = nullptr;  // null: there are no peers
  std::function<StatusInfo()> status;
  std::function<Status()> readiness;  // fails with the reason while not ready
  engine::NotificationCenter* notifications = nullptr;
  engine::HoldTable* holds = nullptr;
  // (name, node id) -> "unix:..." of that peer's socket if it is on this node; else empty.
  std::function<std::string(std::string_view, std::string_view)> node_address =
      [](std::string_view, std::string_view) { return std::string(); };
  std::function<Status()> liveness = [] { return Status(); };  // fails with what has stalled
};

}  // namespace gantry::api
