// Checks everything that must hold before a transfer is issued: usable buffers, a path, a plan.
// Runs on the caller's thread; may block on a peer until the deadline. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sidecar/messaging/hold_client.h"
#include "sidecar/messaging/transfer_status.h"
#include "sidecar/plan/plan_builder.h"
#include "sidecar/plan/segment_budget.h"
#include "sidecar/registry/buffer_registry.h"
#include "sidecar/remote/peer_buffers.h"
#include "sidecar/transfer/delegation.h"
#include "sidecar/transfer/engine_options.h"
#include "sidecar/transfer/fence_watch.h"
#include "sidecar/transfer/path_selector.h"
#include "sidecar/transport/copy_hints.h"
#include "sidecar/transport/transport.h"
#include "sidecar/view/view_table.h"

namespace gantry::engine {

// An admitted transfer and all that it keeps alive. Member order is release order in reverse: plan,
// then remotes, then uses, so that a drain ends last.
struct Admitted {
  std::vector<registry::Buffer::Use> uses;
  std::vector<std::shared_ptr<const RemoteBuffer>> remotes;
  std::optional<TimelineCounter> fence;  // lies in a buffer in use
  SegmentReservation reservation;        // for the plan
  std::shared_ptr<const transport::MovePlan> plan;
  transport::Transport* transport = nullptr;
  // Set instead of a transport: the peer executes the transfer.
  std::shared_ptr<const Delegation> delegation;
  TransferStatus status;
  // None: RDMA works, or only the peer said why not.
  std::optional<metrics::PathObstacle> rdma_obstacle;
  std::optional<wire::Path> blocked_by_tcp;  // see PathChoice
  std::optional<wire::NotificationContent> notify;
  HoldReading reading;
  // Set when the transfer may be retried with fresh descriptions of its remote buffers.
  std::shared_ptr<const wire::TransferRequest> request;
  uint64_t workload_generation = 0;
  uint64_t fingerprint = 0;  // hash of the request's content
  TimePoint begun;
  TimePoint deadline;
  std::optional<LostPath> lost;  // the path that the previous attempt lost
};

class TransferAdmission {
 public:
  TransferAdmission(const EngineOptions& options, registry::BufferRegistry& registry,
                    const std::vector<std::unique_ptr<transport::Transport>>& transports,
                    transport::CopyHints& hints, PeerBuffers& peers, ViewTable& views,
                    const DelegatedTransfers& delegated);

  // Call once, before the first transfer; null: no hold can be read.
  void SetHolds(HoldClient* holds) { holds_ = holds; }
  // Fails with the reason of the refusal. `lost` is the path of a failed attempt: it is not chosen
  // again.
  Result<Admitted> Admit(const wire::TransferRequest& request,
                         std::optional<LostPath> lost = {}) const;

 private:
  // The lists of a view, or of the request itself.
  struct BufferLists {
    const std::vector<wire::BufferReference>& local;
    const std::vector<wire::BufferReference>& remote;
    std::vector<BlockGroup> groups;
  };

  // Returns a copy of the parts that hold for every attempt of the same transfer.
  static Admitted Anew(const Admitted& admitted);
  Status AdmitInto(const wire::TransferRequest& request, Admitted* admitted) const;
  // Renews the view, once, if its buffers were registered anew. StaleRetry does not do this:
  // nothing was started, and buffers here may be the new ones. Later transfers use the renewed
  // view, too. It is not counted as a retry, and leaves the transfer its own.
  Status AdmitView(const wire::TransferRequest& request, Admitted* admitted) const;
  // Admits over the pairs that the view remembers. Changes `admitted` on success only.
  Status AdmitPairs(const wire::TransferRequest& request, const ViewPointer& view,
                    Admitted* admitted) const;
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

  // Chooses the path, or delegates to the peer: then the result has no transport. It delegates if
  // the request demands it, or if no path leads there from here. If the peer cannot either, the
  // error is the missing path. A delegated plan's allocations are whole buffers.
  Result<PathChoice> Choose(const wire::TransferRequest& request, const BufferLists& lists,
                            const PathQuestion& question, Admitted* admitted,
                            PlanInput* input) const;
  Status Delegate(const wire::TransferRequest& request, const BufferLists& lists,
                  std::string_view why_not_here, Admitted* admitted, PlanInput* input) const;
  // Admits the transfer for execution here after the peer refused to execute it.
  Status AdmitHere(const wire::TransferRequest& request, const BufferLists& lists,
                   const Error& refusal, Admitted* admitted) const;

  // Asks the owner of the hold that the request names.
  Status ReadHold(const wire::TransferRequest& request, const BufferLists& lists,
                  Admitted* admitted) const;

  const EngineOptions& options_;
  registry::BufferRegistry& registry_;
  const std::vector<std::unique_ptr<transport::Transport>>& transports_;
  transport::CopyHints& hints_;
  PeerBuffers& peers_;
  ViewTable& views_;
  const DelegatedTransfers& delegated_;
  HoldClient* holds_ = nullptr;
  mutable SegmentBudget segments_;
  mutable std::atomic<uint64_t> next_id_;
};

}  // namespace gantry::engine
