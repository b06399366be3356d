// Every metric of the sidecar, declared once and exported from the start, with closed label sets.
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
#include "lib/codec/buffer_types.h"
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
  uint64_t bytes = 0;  // confirmed as moved
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

// The samples below are read at each scrape. TcpConnections covers the data connections of one
// side: outgoing (initiator) or incoming (target).
struct TcpConnections {
  uint64_t open = 0;
  uint64_t opened = 0;      // cumulative, as all that follow
  uint64_t failed = 0;      // attempts; at the target also protocol violations
  uint64_t bytes_read = 0;  // by the executing side
  uint64_t bytes_written = 0;
};

// The staging memory between the network and buffers that only copy workers touch.
struct StagingSample {
  uint64_t bytes = 0;
  uint64_t initiator_slices = 0;  // in use
  uint64_t target_slices = 0;
  uint64_t bytes_from_buffers = 0;  // cumulative, as the next one
  uint64_t bytes_to_buffers = 0;
};

// One RDMA device, in this sidecar's own transfers.
struct RdmaDeviceSample {
  std::string device;
  bool port_active = false;
  uint64_t chunks = 0;  // registered
  uint64_t queue_pairs = 0;
  uint64_t inflight = 0;      // work requests, as the next two
  uint64_t inflight_max = 0;  // limit of its queue pairs together
  uint64_t retried = 0;       // cumulative, as all that follow
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
  // Cumulative counters. A map is one allocation in one worker.
  uint64_t worker_restarts = 0;
  uint64_t worker_pid_conflicts = 0;
  uint64_t worker_maps_succeeded = 0;
  uint64_t worker_maps_failed = 0;
  uint64_t peers_up = 0;
  uint64_t peers = 0;
  uint64_t peer_fds_mapped = 0;   // descriptors of peers' memory
  uint64_t peer_fds_waiting = 0;  // our descriptors, in tickets that peers have not used yet
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
  // Counts a transfer or registration that touched memory without permission, by path and reason.
  // Ignores codes that are no access error.
  void AccessError(std::optional<wire::Path> path, ErrorCode code);
  // Ignores codes that are no transport error.
  void TransportError(std::optional<wire::Path> path, ErrorCode code);
  // Counts as AccessError or as TransportError, whichever knows the code.
  void PathError(wire::Path path, ErrorCode code);
  // Counts a transfer that was retried with fresh buffer descriptors, after the peer answered
  // `code`.
  void TransferRetried(ErrorCode code);
  void PathSelected(wire::Path path);
  // Counts a transfer that took a slower path although RDMA works on this side.
  void RdmaFallback(wire::Path taken, PathObstacle why);
  // Counts a transfer over TCP to a peer on this node that did not take `from`, a shared-memory
  // path.
  void NodeFallback(wire::Path from, wire::Path taken);
  // Adds to the time during which the path was busy: the union over transfers, in seconds.
  void Busy(wire::Operation operation, wire::Path path, double seconds);
  void RegistrationEnded(bool ok, uint64_t buffers);
  void HttpRequest(std::string_view route, std::string_view method, int code, double seconds);
  void HoldExpired();
  void NotificationEnded(NotificationDirection direction, NotificationOutcome outcome);
  void PeerRefused(PeerRefusal why);
  // "detached", "died", "expired" or "deleted"; any other text counts as "other".
  void WorkloadEnded(std::string_view reason);
  void EventLost(uint64_t count);

  // `source` runs at each scrape, on the scraping thread; null exports zeros. After the return no
  // scrape uses the previous source.
  void SetGaugeSource(std::function<GaugeSample()> source);

  // Returns the exposition format, text/plain; version=0.0.4.
  std::string Text() const;
  // Serves /metrics on "address:port" for the pod network, and returns the port. Port 0 picks one.
  Result<int> Listen(const std::string& address);

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
};

}  // namespace gantry::metrics
