// Chooses a transfer's transport: the first in order of preference that both sides report as able.
// Returns the reason against each faster one. Pure; thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/buffer_types.h"
#include "sidecar/metrics/path_obstacle.h"
#include "sidecar/transport/transport.h"

namespace gantry::engine {

struct PathChoice {
  transport::Transport* transport = nullptr;
  std::vector<wire::PathReport> reports;  // every path, fastest first
  // None: RDMA works, or this side did not ask it.
  std::optional<metrics::PathObstacle> rdma_obstacle;
  // The fastest allowed path whose only obstacle is that the peer was reached over TCP. It needs a
  // socket in the node directory.
  std::optional<wire::Path> blocked_by_tcp;
};

// A path that failed the transfer's first attempt.
struct LostPath {
  wire::Path path = wire::Path::kTcp;
  std::string why;
};

struct PathQuestion {
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>* local = nullptr;
  std::optional<Error> why_not_on_nics;  // none: all local buffers are registered on RDMA devices
  // Their registrations.
  const std::vector<std::shared_ptr<const memory::NicMemory>>* local_nic_memory = nullptr;
  const std::vector<transport::RemoteAllocation>* remote = nullptr;
  // The same with one allocation per buffer, for transports that address buffers.
  const std::vector<transport::RemoteAllocation>* remote_buffers = nullptr;
  const std::vector<wire::PathReport>* peer_reports = nullptr;  // null: both sides are this sidecar
  const std::vector<wire::Path>* require = nullptr;             // empty: any
  const LostPath* lost = nullptr;                               // not chosen again; null: none
};

// The reason against a path that only the caller excludes.
inline constexpr std::string_view kNotRequired = "require_path does not name it";

// kPathUnavailable lists every path with its reason.
Result<PathChoice> SelectPath(const std::vector<std::unique_ptr<transport::Transport>>& transports,
                              const PathQuestion& question);

// Whether each path works on this machine, independent of any pair.
std::vector<wire::PathReport> ProbePaths(
    const std::vector<std::unique_ptr<transport::Transport>>& transports);

}  // namespace gantry::engine
