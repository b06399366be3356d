// Everything that must be true before a transfer is issued: buffers that exist and may be used, a
// path, a plan. Runs on the caller's thread; may block on a peer up to the deadline. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "sidecar/engine/engine_options.h"
#include "sidecar/engine/peer_gateway.h"
#include "sidecar/engine/plan_builder.h"
#include "sidecar/engine/segment_budget.h"
#include "sidecar/engine/transfer_status.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/transport/transport.h"

namespace gantry::engine {

// A transfer that may start, and all that it keeps alive. Members are released in the order that
// lets a drain end last: plan, then remotes, then uses.
struct Admitted {
  std::vector<registry::Buffer::Use> uses;
  std::vector<std::shared_ptr<const RemoteBuffer>> remotes;
  SegmentReservation reservation;  // of the plan
  std::shared_ptr<const transport::MovePlan> plan;
  transport::Transport* transport = nullptr;
  TransferStatus status;
  std::optional<wire::NotificationContent> notify;
  uint64_t workload_generation = 0;
  uint64_t fingerprint = 0;  // of the request's content
  TimePoint begun;
  TimePoint deadline;
};

// Equal for requests of equal content, whatever their ids.
uint64_t FingerprintOf(const wire::TransferRequest& request);

class TransferAdmission {
 public:
  TransferAdmission(const EngineOptions& options, registry::BufferRegistry& registry,
                    const std::vector<std::unique_ptr<transport::Transport>>& transports);

  void SetPeerGateway(PeerGateway* gateway) { gateway_ = gateway; }
  Result<Admitted> Admit(const wire::TransferRequest& request) const;

 private:
  Status ResolveLocal(const wire::TransferRequest& request, Admitted* admitted,
                      PlanInput* input) const;
  Status ResolveRemote(const wire::TransferRequest& request, Admitted* admitted,
                       PlanInput* input) const;
  Status ResolveOwnRemote(const wire::TransferRequest& request, Admitted* admitted,
                          PlanInput* input) const;
  // What is cached at once; else waits for the peer, if not too many do so already.
  Status AcquireFromPeer(const wire::TransferRequest& request, Admitted* admitted) const;
  Status ResolvePeerRemote(const wire::TransferRequest& request, Admitted* admitted,
                           PlanInput* input) const;

  const EngineOptions& options_;
  registry::BufferRegistry& registry_;
  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  PeerGateway* gateway_ = nullptr;
  mutable SegmentBudget segments_;
  mutable std::atomic<size_t> peer_waits_{0};
};

}  // namespace gantry::engine
