// Every metric of the sidecar, declared once, present from the start, with closed label sets.
// Names, units and labels: docs/metrics.md. Thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/result.h"
#include "lib/wire/buffer_types.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/metrics/metric_labels.h"
#include "sidecar/metrics/notification_outcome.h"
#include "sidecar/metrics/path_obstacle.h"
#include "sidecar/metrics/peer_refusal.h"

namespace gantry::metrics {

// Closed label sets; indices into the tables in metrics.cc.
enum class Outcome { kSucceeded, kFailed, kCancelled, kExpired, kRejected };
enum class Stage { kAdmit, kFence, kQueue, kMove, kQuiesce };

struct TransferSample {
  wire::Operation operation = wire::Operation::kRead;
  std::optional<wire::Path> path;  // none: it was refused before one was chosen
  Outcome outcome = Outcome::kSucceeded;
  uint64_t bytes = 0;  // moved for certain
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;
  uint64_t chunks_succeeded = 0;
  uint64_t chunks_failed = 0;
  uint64_t chunks_retried = 0;
  std::array<uint64_t, kGpuJobKinds.size()> gpu_jobs = {};  // by this sidecar's workers
  double seconds = 0;                                       // admission to outcome
  double admit_seconds = 0;
  double fence_seconds = 0;
  double queue_seconds = 0;
  double move_seconds = 0;
  double quiesce_seconds = 0;
};

// Read at each scrape.
// The data connections of one side: those that this sidecar made, or those that peers made to it.
struct TcpConnections {
  uint64_t open = 0;
  uint64_t opened = 0;      // this and the rest: ever
  uint64_t failed = 0;      // attempts; at the target also those that broke the protocol
  uint64_t bytes_read = 0;  // by the side that executes
  uint64_t bytes_written = 0;
};

// The memory between GPUs and the network.
struct StagingSample {
  uint64_t bytes = 0;
  uint64_t initiator_slices = 0;  // in use
  uint64_t target_slices = 0;
  uint64_t bytes_from_gpus = 0;  // ever
  uint64_t bytes_to_gpus = 0;
};

// An RDMA device in this sidecar's own transfers.
struct RdmaDeviceSample {
  std::string device;
  bool port_active = false;
  uint64_t chunks = 0;  // registered
  uint64_t queue_pairs = 0;
  uint64_t inflight = 0;      // work requests, as are the next two
  uint64_t inflight_max = 0;  // that its queue pairs take together
  uint64_t retried = 0;       // this and the rest: ever
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;
};

struct RdmaSample {
  uint64_t initiator_connections = 0;
  uint64_t target_connections = 0;
  std::vector<RdmaDeviceSample> devices;
};

struct GaugeSample {
  uint64_t workloads = 0;
  uint64_t buffers = 0;
  uint64_t allocations = 0;
  uint64_t registered_bytes = 0;
  uint64_t mapped_bytes = 0;
  uint64_t ipc_mapped_bytes = 0;
  uint64_t ipc_workers = 0;
  uint64_t ipc_workers_refused = 0;
  uint64_t mappings = 0;  // over all workers
  uint64_t fds_held = 0;
  uint64_t transfers_queued = 0;
  uint64_t transfers_running = 0;
  uint64_t bytes_inflight = 0;
  uint64_t workers_ready = 0;
  uint64_t workers = 0;
  // Counters, exported as such. A map is one allocation in one worker.
  uint64_t worker_restarts = 0;
  uint64_t worker_pid_conflicts = 0;
  uint64_t worker_maps_succeeded = 0;
  uint64_t worker_maps_failed = 0;
  uint64_t peers_up = 0;
  uint64_t peers = 0;
  uint64_t peer_fds_mapped = 0;   // of peers' memory
  uint64_t peer_fds_waiting = 0;  // of ours, in tickets
  uint64_t http_connections = 0;
  uint64_t holds = 0;
  TcpConnections tcp_initiator;
  TcpConnections tcp_target;
  StagingSample staging;
  RdmaSample rdma;
};

class Metrics {
 public:
  explicit Metrics(std::string_view version);
  ~Metrics();

  void TransferEnded(const TransferSample& sample);
  // A transfer or registration that touched what it may not: counted by path and by the error
  // code's metric_reason. Codes that are no access error are not counted here.
  void AccessError(std::optional<wire::Path> path, ErrorCode code);
  void TransportError(std::optional<wire::Path> path, ErrorCode code);
  // In the one of both that has its reason.
  void PathError(wire::Path path, ErrorCode code);
  // Begun again with a fresh description of its remote buffers, after the peer answered so.
  void TransferRetried(ErrorCode code);
  void PathSelected(wire::Path path);
  // Took a slower path than RDMA, which works on this side.
  void RdmaFallback(wire::Path taken, PathObstacle why);
  // Did not take `from`, which shares memory, though the peer is on this node: it was reached over
  // TCP.
  void NodeFallback(wire::Path from, wire::Path taken);
  // The time in which any transfer was busy on the path.
  void Busy(wire::Operation operation, wire::Path path, double seconds);
  void RegistrationEnded(bool ok, uint64_t buffers);
  void HttpRequest(std::string_view route, std::string_view method, int code, double seconds);
  void HoldExpired();
  void NotificationEnded(NotificationDirection direction, NotificationOutcome outcome);
  void PeerRefused(PeerRefusal why);
  void WorkloadEnded(std::string_view why);  // closed set: "detached", "died", "expired", "deleted"
  void EventLost(uint64_t count);

  // Called at each scrape, on the scraping thread; null: zeros. When this returns, no scrape uses
  // the source before it any more.
  void SetGaugeSource(std::function<GaugeSample()> source);

  // The exposition format, text/plain; version=0.0.4.
  std::string Text() const;
  // Serves /metrics on "address:port", for the pod network. Port 0 picks one.
  Result<int> Listen(const std::string& address);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace gantry::metrics
