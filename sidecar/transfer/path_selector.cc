#include "sidecar/transfer/path_selector.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gantry::engine {
namespace {

using metrics::PathObstacle;

transport::Transport* Find(const std::vector<std::unique_ptr<transport::Transport>>& transports,
                           wire::Path path) {
  for (const auto& transport : transports) {
    if (transport->path() == path) return transport.get();
  }
  return nullptr;
}

std::string NotBuilt(wire::Path path) {
  return "this version has no " + std::string(wire::NameOf(path)) + " transport";
}

using Allocations = std::vector<const memory::MappedAllocation*>;

// One of each kind of memory, seal and GPU: what a transport can do with it is the same for all of
// those, and there are thousands of them where virtual memory has many pieces.
Allocations Representatives(const PathQuestion& question) {
  Allocations chosen;
  for (const auto& local : *question.local) {
    const bool known =
        std::any_of(chosen.rbegin(), chosen.rend(), [&](const memory::MappedAllocation* other) {
          return other->kind() == local->kind() && other->unsealed() == local->unsealed() &&
                 other->gpu().device_uuid == local->gpu().device_uuid;
        });
    if (!known) chosen.push_back(local.get());
  }
  return chosen;
}

// Why a path is not taken; an empty reason: it can be.
struct Objection {
  std::string reason;
  PathObstacle obstacle = PathObstacle::kPeer;
};

// Why this side cannot execute between every pair of allocations.
Objection LocalObjection(const transport::Transport& transport, const Allocations& locals,
                         const PathQuestion& question) {
  const auto& remotes =
      transport.traits().addresses_buffers ? *question.remote_buffers : *question.remote;
  const transport::LocalSide side = {*question.local, *question.local_nic_memory,
                                     question.why_not_on_nics};
  if (auto status = transport.CanCarry(side, remotes); !status) {
    return {std::move(status.error().message), question.why_not_on_nics.has_value()
                                                   ? PathObstacle::kNotRegistered
                                                   : PathObstacle::kNoPort};
  }
  // What can reach one allocation may not reach another; a transfer takes one path as a whole.
  for (const auto& remote : remotes) {
    for (const memory::MappedAllocation* const local : locals) {
      if (auto status = transport.CanReach(*local, remote); !status) {
        return {std::move(status.error().message), PathObstacle::kUnreachable};
      }
    }
  }
  return {};
}

// True when the peer's sidecar must support the transport's path, too.
bool NeedsPeer(const transport::TransportTraits& traits, const PathQuestion& question) {
  return std::any_of(question.remote->begin(), question.remote->end(), [&](const auto& remote) {
    return !traits.host_memory_needs_no_peer || remote.mapped == nullptr ||
           remote.mapped->kind() != wire::MemoryKind::kHost;
  });
}

Objection PeerObjection(const transport::TransportTraits& traits, const PathQuestion& question) {
  if (question.peer_reports == nullptr || !NeedsPeer(traits, question)) return {};
  for (const wire::PathReport& report : *question.peer_reports) {
    if (report.path != traits.path) continue;
    return {report.available ? "" : "the peer says: " + report.reason, PathObstacle::kPeer};
  }
  return {"the peer did not report this path", PathObstacle::kPeer};
}

// Where a buffer is addressed as a whole, its peer knows better than this side why it is not; and
// how this side came to it.
Objection ObjectionTo(transport::Transport* transport, wire::Path path, const Allocations& locals,
                      const PathQuestion& question) {
  if (transport == nullptr) return {NotBuilt(path)};
  if (question.lost != nullptr && question.lost->path == path) {
    return {question.lost->why, PathObstacle::kFailed};
  }
  if (auto status = transport->Probe(); !status) return {std::move(status.error().message)};
  const transport::TransportTraits traits = transport->traits();
  Objection of_peer = PeerObjection(traits, question);
  const bool peer_first =
      traits.addresses_buffers || of_peer.reason.ends_with(wire::kReachedOverTcp);
  if (peer_first && !of_peer.reason.empty()) return of_peer;
  Objection objection = LocalObjection(*transport, locals, question);
  return objection.reason.empty() ? of_peer : objection;
}

std::string RequirementReason(wire::Path path, const PathQuestion& question) {
  const std::vector<wire::Path>& require = *question.require;
  const bool allowed =
      require.empty() || std::find(require.begin(), require.end(), path) != require.end();
  return allowed ? std::string() : std::string(kNotRequired);
}

std::string ReasonsOf(const std::vector<wire::PathReport>& reports) {
  std::string reasons;
  for (const wire::PathReport& report : reports) {
    reasons.append(reasons.empty() ? "" : "; ").append(wire::NameOf(report.path));
    reasons.append(": ").append(report.reason);
  }
  return reasons;
}

}  // namespace

Result<PathChoice> SelectPath(const std::vector<std::unique_ptr<transport::Transport>>& transports,
                              const PathQuestion& question) {
  PathChoice choice;
  choice.reports.reserve(wire::kPathCount);
  const Allocations locals = Representatives(question);
  for (const wire::Path path : wire::kPaths) {
    transport::Transport* transport = Find(transports, path);
    auto [reason, obstacle] = ObjectionTo(transport, path, locals, question);
    if (path == wire::Path::kRdma && !reason.empty()) choice.rdma_obstacle = obstacle;
    if (!choice.blocked_by_tcp && reason.ends_with(wire::kReachedOverTcp) &&
        RequirementReason(path, question).empty()) {
      choice.blocked_by_tcp = path;
    }
    if (reason.empty()) reason = RequirementReason(path, question);
    if (reason.empty() && choice.transport == nullptr) choice.transport = transport;
    choice.reports.push_back({path, reason.empty(), std::move(reason)});
  }
  if (choice.transport != nullptr) return choice;
  return Fail(ErrorCode::kPathUnavailable,
              "no path can carry this transfer: " + ReasonsOf(choice.reports),
              question.require->empty() ? "GET /v1/status says what each path needs"
                                        : "leave out require_path to take any path",
              question.require->empty() ? "" : "/require_path");
}

std::vector<wire::PathReport> ProbePaths(
    const std::vector<std::unique_ptr<transport::Transport>>& transports) {
  std::vector<wire::PathReport> reports;
  for (const wire::Path path : wire::kPaths) {
    transport::Transport* transport = Find(transports, path);
    std::string reason;
    if (transport == nullptr) {
      reason = NotBuilt(path);
    } else if (auto status = transport->Probe(); !status) {
      reason = status.error().message;
    }
    reports.push_back({path, reason.empty(), std::move(reason)});
  }
  return reports;
}

}  // namespace gantry::engine
