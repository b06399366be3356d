// Chooses the transport of a transfer: the first in order of preference that both sides say can
// carry it, and for each faster one the reason why not. Pure; thread-safe.
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
  std::vector<wire::PathReport> reports;  // every path, fastest first, up to and after the chosen
  std::optional<metrics::PathObstacle> against_rdma;  // none: it can, or nobody here asked it
  // The fastest that the caller allows and that lacks nothing but a socket in the node's directory.
  std::optional<wire::Path> kept_off_by_tcp;
};

// A path that failed a transfer's first attempt.
struct LostPath {
  wire::Path path = wire::Path::kTcp;
  std::string why;
};

struct PathQuestion {
  const std::vector<std::shared_ptr<const memory::MappedAllocation>>* local = nullptr;
  std::optional<Error> why_not_on_nics;  // none: RDMA devices have all local buffers
  const std::vector<std::shared_ptr<const memory::NicMemory>>* local_on_nics = nullptr;  // what
  const std::vector<transport::RemoteAllocation>* remote = nullptr;
  // What a transport that addresses buffers is asked about instead: one for each buffer.
  const std::vector<transport::RemoteAllocation>* remote_buffers = nullptr;
  const std::vector<wire::PathReport>* peer_reports = nullptr;  // null: this sidecar is the peer
  const std::vector<wire::Path>* require = nullptr;             // empty: any
  const LostPath* lost = nullptr;                               // is not taken again; null: none
};

// The reason of a path that the caller excluded and nothing else.
inline constexpr std::string_view kNotRequired = "require_path does not name it";

// kPathUnavailable names every path and its reason.
Result<PathChoice> SelectPath(const std::vector<std::unique_ptr<transport::Transport>>& transports,
                              const PathQuestion& question);

// What each path is good for on this machine, before any pair is known.
std::vector<wire::PathReport> ProbePaths(
    const std::vector<std::unique_ptr<transport::Transport>>& transports);

}  // namespace gantry::engine
