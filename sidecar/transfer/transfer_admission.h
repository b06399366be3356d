// Everything that must be true before a transfer is issued: buffers that exist and may be used, a
// path, a plan. Runs on the caller's thread; may block on a peer up to the deadline. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/messaging/hold_desk.h"
#include "sidecar/messaging/transfer_status.h"
#include "sidecar/plan/plan_builder.h"
#include "sidecar/plan/segment_budget.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/remote/peer_buffers.h"
#include "sidecar/transfer/delegation.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/fence_watch.h"
#include "sidecar/transfer/path_selector.h"
#include "sidecar/transport/transport.h"
#include "sidecar/view/view_table.h"

namespace gantry::engine {

// A transfer that may start, and all that it keeps alive. Members are released in the order that
// lets a drain end last: plan, then remotes, then uses.
struct Admitted {
  std::vector<registry::Buffer::Use> uses;
  std::vector<std::shared_ptr<const RemoteBuffer>> remotes;
  std::optional<TimelineCounter> fence;  // in a buffer that is in use
  SegmentReservation reservation;        // of the plan
  std::shared_ptr<const transport::MovePlan> plan;
  transport::Transport* transport = nullptr;
  std::shared_ptr<const Delegation> delegation;  // instead of a transport: the peer executes it
  TransferStatus status;
  std::optional<metrics::PathObstacle> against_rdma;  // none: only the peer has said why not
  std::optional<wire::Path> kept_off_by_tcp;          // as PathChoice has it
  std::optional<wire::NotificationContent> notify;
  HoldReading reading;
  // Of a transfer that may be tried again with a fresh description of its remote buffers.
  std::shared_ptr<const wire::TransferRequest> request;
  uint64_t workload_generation = 0;
  uint64_t fingerprint = 0;  // of the request's content
  TimePoint begun;
  TimePoint deadline;
  std::optional<LostPath> lost;  // by the attempt before this
};

class TransferAdmission {
 public:
  TransferAdmission(const EngineOptions& options, registry::BufferRegistry& registry,
                    const std::vector<std::unique_ptr<transport::Transport>>& transports,
                    PeerBuffers& peers, ViewTable& views, const DelegatedTransfers& delegated);

  // Set once, before the first transfer; null: no hold can be read.
  void SetHolds(HoldDesk* holds) { holds_ = holds; }

  Result<Admitted> Admit(const wire::TransferRequest& request,
                         std::optional<LostPath> lost = {}) const;

 private:
  // Of a view, or the request's own.
  struct BufferLists {
    const std::vector<wire::BufferReference>& local;
    const std::vector<wire::BufferReference>& remote;
    std::vector<BlockGroup> groups;
  };

  // Nothing but what holds for every attempt of the same transfer.
  static Admitted Anew(const Admitted& admitted);
  Status AdmitInto(const wire::TransferRequest& request, Admitted* admitted) const;
  // A view whose buffers were registered anew is refreshed once.
  Status AdmitView(const wire::TransferRequest& request, Admitted* admitted) const;
  Status AdmitOver(const wire::TransferRequest& request, const BufferLists& lists,
                   Admitted* admitted) const;
  Status ResolveFence(const wire::TransferRequest& request, Admitted* admitted) const;
  Status ResolveLocal(const wire::TransferRequest& request, const BufferLists& lists,
                      Admitted* admitted, PlanInput* input) const;
  Status ResolveRemote(const wire::TransferRequest& request, const BufferLists& lists,
                       Admitted* admitted, PlanInput* input) const;
  Status ResolveOwnRemote(const wire::TransferRequest& request, const BufferLists& lists,
                          Admitted* admitted, PlanInput* input) const;
  Status ResolvePeerRemote(const wire::TransferRequest& request, const BufferLists& lists,
                           Admitted* admitted, PlanInput* input) const;

  // The peer executes it: because the request says so, or because no path leads there from here,
  // which is then the answer when the peer cannot either. The plan's allocations are whole buffers.
  // Without a transport: the peer does.
  Result<PathChoice> Choose(const wire::TransferRequest& request, const BufferLists& lists,
                            const PathQuestion& question, Admitted* admitted,
                            PlanInput* input) const;
  Status Delegate(const wire::TransferRequest& request, const BufferLists& lists,
                  std::string_view why_not_here, Admitted* admitted, PlanInput* input) const;
  // The peer was to execute it and refuses: this sidecar does, where it may and has a path.
  Status AdmitHere(const wire::TransferRequest& request, const BufferLists& lists,
                   const Error& refusal, Admitted* admitted) const;

  // Asks the owner of the hold that the request names.
  Status ReadHold(const wire::TransferRequest& request, const BufferLists& lists,
                  Admitted* admitted) const;

  const EngineOptions& options_;
  registry::BufferRegistry& registry_;
  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  PeerBuffers& peers_;
  ViewTable& views_;
  const DelegatedTransfers& delegated_;
  HoldDesk* holds_ = nullptr;
  mutable SegmentBudget segments_;
  mutable std::atomic<uint64_t> next_id_;
};

}  // namespace gantry::engine
