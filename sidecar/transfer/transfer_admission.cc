#include "sidecar/transfer/transfer_admission.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "lib/base/name.h"
#include "lib/base/random_id.h"
#include "sidecar/transfer/transfer_fingerprint.h"
#include "sidecar/view/view_selection.h"

namespace gantry::engine {
namespace {

constexpr size_t kUserDataBytesMax = 1024;

// Each distinct allocation once; the plan's indices follow.
template <typename Allocation>
class AllocationList {
 public:
  explicit AllocationList(std::vector<Allocation>* list) : list_(*list) {}

  uint32_t IndexOf(const void* identity, const Allocation& allocation) {
    const auto [found, added] = index_.try_emplace(identity, static_cast<uint32_t>(list_.size()));
    if (added) list_.push_back(allocation);
    return found->second;
  }

 private:
  std::vector<Allocation>& list_;
  absl::flat_hash_map<const void*, uint32_t> index_;
};

// With 13 digits it is so short that no copy of it needs memory of its own, of which each buffer
// has one while it is used.
std::string TransferId(uint64_t number) { return "t-" + HexOf(number).substr(3); }

std::string ListField(std::string_view list, size_t index) {
  return "/" + std::string(list) + "/" + std::to_string(index);
}

Status CheckHead(const wire::TransferRequest& request, const EngineOptions& options) {
  if (!request.id.empty()) RETURN_IF_ERROR(CheckName(request.id, "/id"));
  if (request.priority < -wire::kPriorityMax || request.priority > wire::kPriorityMax) {
    return Fail(ErrorCode::kInvalidArgument, "priority is not within -10 and 10", {}, "/priority");
  }
  if (request.user_data.size() > kUserDataBytesMax) {
    return Fail(ErrorCode::kInvalidArgument, "user_data is longer than 1024 bytes", {},
                "/user_data");
  }
  const auto deadline_max = static_cast<uint64_t>(options.deadline_max.count());
  if (request.deadline_ms && (*request.deadline_ms == 0 || *request.deadline_ms > deadline_max)) {
    return Fail(ErrorCode::kInvalidArgument,
                "deadline_ms is not within 1 and " + std::to_string(deadline_max), {},
                "/deadline_ms");
  }
  if (request.local.size() > options.references_max ||
      request.remote.size() > options.references_max) {
    return Fail(ErrorCode::kResourceExhausted,
                "a transfer names at most " + std::to_string(options.references_max) +
                    " buffers on each side",
                "split it into several transfers",
                request.local.size() > options.references_max ? "/local" : "/remote");
  }
  if (request.view.empty() && (request.local.empty() || request.remote.empty())) {
    return Fail(ErrorCode::kInvalidArgument, "a transfer names local and remote buffers", {},
                request.local.empty() ? "/local" : "/remote");
  }
  return {};
}

Status CheckAccess(const wire::Access& access, const wire::TransferRequest& request,
                   const wire::BufferReference& reference, size_t index) {
  const bool read = request.operation == wire::Operation::kRead;
  if (read ? access.remote_read : access.remote_write) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "buffer '" + FormatReference(reference) + "' does not grant " +
                  (read ? "remote_read" : "remote_write"),
              "its owner grants it at registration, in `access`", ListField("remote", index));
}

Status CheckWritable(const memory::MappedAllocation& allocation, const PlanBuffer& buffer,
                     std::string_view list, size_t index) {
  if (allocation.writable()) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "buffer '" + buffer.Name() + "' was handed over read-only",
              "register it with a descriptor that is open for writing", ListField(list, index));
}

std::vector<transport::RemoteAllocation> TargetsOf(
    const std::vector<std::shared_ptr<const RemoteBuffer>>& remotes) {
  std::vector<transport::RemoteAllocation> targets;
  targets.reserve(remotes.size());
  for (const auto& remote : remotes) targets.push_back({nullptr, remote->target});
  return targets;
}

// The owner resolves buffers by itself: to the plan each is one allocation of its own length.
void PlanOverBuffers(const std::vector<std::shared_ptr<const RemoteBuffer>>& remotes,
                     const std::vector<transport::RemoteAllocation>& targets, PlanInput* input) {
  input->remote_allocations.clear();
  AllocationList list(&input->remote_allocations);
  for (size_t i = 0; i < remotes.size(); ++i) {
    input->remote[i].pieces = &remotes[i]->flat;
    input->remote[i].allocations = {list.IndexOf(targets[i].target.get(), targets[i])};
  }
}

// Whether a renewed view may be admitted where this one was refused.
bool IsOutOfDate(const View& view, const Error& refusal) {
  if (refusal.field.starts_with("/fence")) return false;
  // Buffers that are gone may have gone with a life that the view is fenced by.
  return refusal.code == ErrorCode::kStaleGeneration ||
         (refusal.code == ErrorCode::kUnregistered && view.request.remote_generation != 0);
}

// Of a transfer by view: the request names no buffers, and which it was the message says.
tl::unexpected<Error> OfView(Error error, const std::string& view) {
  if (error.field.starts_with("/local/") || error.field.starts_with("/remote/")) {
    error.field = "/view";
    error = std::move(error).WithContext("view '" + view + "'");
  }
  return Fail(std::move(error));
}

}  // namespace

TransferAdmission::TransferAdmission(
    const EngineOptions& options, registry::BufferRegistry& registry,
    const std::vector<std::unique_ptr<transport::Transport>>& transports,
    transport::CopyHints& hints, PeerBuffers& peers, ViewTable& views,
    const DelegatedTransfers& delegated)
    : options_(options),
      registry_(registry),
      transports_(transports),
      hints_(hints),
      peers_(peers),
      views_(views),
      delegated_(delegated),
      segments_(options.descriptors_queued_max),
      next_id_(RandomGeneration()) {}

Result<Admitted> TransferAdmission::Admit(const wire::TransferRequest& request,
                                          std::optional<LostPath> lost) const {
  Result<Admitted> result;
  Admitted& admitted = *result;
  admitted.lost = std::move(lost);
  Status status = AdmitInto(request, &admitted);
  if (!status) result = Fail(std::move(status).error());
  return result;
}

Status TransferAdmission::AdmitInto(const wire::TransferRequest& request,
                                    Admitted* admitted) const {
  RETURN_IF_ERROR(CheckHead(request, options_));
  admitted->begun = Clock::now();
  const milliseconds time = request.deadline_ms
                                ? milliseconds(static_cast<int64_t>(*request.deadline_ms))
                                : options_.deadline_default;
  admitted->deadline = admitted->begun + time;
  // Ids begin at a random number: another sidecar's differ, and none costs a call of the kernel.
  admitted->status.id = request.id.empty()
                            ? TransferId(next_id_.fetch_add(1, std::memory_order_relaxed))
                            : request.id;
  admitted->fingerprint = FingerprintOf(request);
  return request.view.empty() ? AdmitOver(request, {request.local, request.remote, {}}, admitted)
                              : AdmitView(request, admitted);
}

Admitted TransferAdmission::Anew(const Admitted& admitted) {
  Admitted fresh;
  fresh.begun = admitted.begun;
  fresh.deadline = admitted.deadline;
  fresh.fingerprint = admitted.fingerprint;
  fresh.lost = admitted.lost;
  fresh.status.id = admitted.status.id;
  return fresh;
}

Status TransferAdmission::AdmitView(const wire::TransferRequest& request,
                                    Admitted* admitted) const {
  auto view = views_.Get(request.workload, request.view);
  if (!view) return Fail(std::move(view).error().WithField("/view"));
  Status status = AdmitPairs(request, *view, admitted);
  if (!status && IsOutOfDate(**view, status.error())) {
    view = views_.Renew(*view, admitted->deadline);
    if (!view) return Fail(std::move(view).error().WithField("/view"));
    status = AdmitPairs(request, *view, admitted);
  }
  if (!status) return OfView(std::move(status).error(), request.view);
  return {};
}

Status TransferAdmission::AdmitPairs(const wire::TransferRequest& request, const ViewPointer& view,
                                     Admitted* admitted) const {
  ASSIGN_OR_RETURN(const ViewSelection selection, ViewSelection::Of(view, request));
  Admitted fresh = Anew(*admitted);
  RETURN_IF_ERROR(
      AdmitOver(request, {selection.local(), selection.remote(), selection.groups()}, &fresh));
  *admitted = std::move(fresh);
  return {};
}

Status TransferAdmission::AdmitOver(const wire::TransferRequest& request, const BufferLists& lists,
                                    Admitted* admitted) const {
  PlanInput input;
  input.request = &request;
  input.groups = lists.groups;
  RETURN_IF_ERROR(ResolveLocal(request, lists, admitted, &input));
  RETURN_IF_ERROR(ResolveRemote(request, lists, admitted, &input));
  if (request.fence) RETURN_IF_ERROR(ResolveFence(request, admitted));

  RETURN_IF_ERROR(transport::CheckNotTruncated(input.local_allocations, input.remote_allocations));
  const std::vector<transport::RemoteAllocation> targets = TargetsOf(admitted->remotes);
  PathQuestion question;
  question.local = &input.local_allocations;
  question.why_not_on_nics = input.why_not_on_nics;
  question.local_nic_memory = &input.local_nic_memory;
  question.remote = &input.remote_allocations;
  question.remote_buffers = targets.empty() ? &input.remote_allocations : &targets;
  question.peer_reports = admitted->remotes.empty() ? nullptr : &admitted->remotes.front()->paths;
  question.require = &request.require_path;
  question.lost = admitted->lost ? &*admitted->lost : nullptr;
  ASSIGN_OR_RETURN(PathChoice choice, Choose(request, lists, question, admitted, &input));
  PlanLimits limits = {options_.descriptors_max, options_.chunk_bytes_max,
                       options_.descriptors_max};
  if (choice.transport != nullptr) {
    const transport::TransportTraits traits = choice.transport->traits();
    if (traits.path == wire::Path::kIpc) {
      hints_.Expect(request.local_blocks.size() + request.ranges.size());
      limits.rows = hints_.RowsOf(input.local_allocations, input.remote_allocations);
    }
    if (traits.addresses_buffers) PlanOverBuffers(admitted->remotes, targets, &input);
  }
  admitted->reservation = SegmentReservation(segments_);
  ASSIGN_OR_RETURN(BuiltPlan built, BuildPlan(std::move(input), limits, &admitted->reservation));

  if (admitted->delegation != nullptr && RangesOf(*built.plan) > kDelegatedRangesMax) {
    const Error refusal(ErrorCode::kResourceExhausted,
                        "the peer would execute " + std::to_string(RangesOf(*built.plan)) +
                            " ranges, at most " + std::to_string(kDelegatedRangesMax) +
                            " go at once",
                        "split it into several transfers");
    return AdmitHere(request, lists, refusal, admitted);
  }
  admitted->transport = choice.transport;
  admitted->plan = std::move(built.plan);
  admitted->notify = request.notify;
  TransferStatus& status = admitted->status;
  status.workload = request.workload;
  status.peer = lists.remote.front().peer;
  status.operation = request.operation;
  if (choice.transport != nullptr) {
    status.path = choice.transport->path();
    status.paths = std::move(choice.reports);
    admitted->rdma_obstacle = choice.rdma_obstacle;
    admitted->blocked_by_tcp = choice.blocked_by_tcp;
  }
  status.bytes = admitted->plan->bytes;
  status.chunks = admitted->plan->segments.size();
  status.descriptors_in = admitted->plan->descriptors_in;
  status.descriptors_out = built.descriptors_out;
  status.priority = request.priority;
  status.by_blocks = request.by_blocks;
  status.user_data = request.user_data;
  status.requested_by = request.requested_by;
  return request.hold.empty() ? Status() : ReadHold(request, lists, admitted);
}

Status TransferAdmission::ResolveFence(const wire::TransferRequest& request,
                                       Admitted* admitted) const {
  const wire::BufferReference& buffer = request.fence->buffer;
  auto use =
      registry_.Acquire(request.workload, buffer.buffer, buffer.generation, admitted->status.id);
  if (!use) return Fail(std::move(use).error().WithField("/fence/buffer"));
  ASSIGN_OR_RETURN(admitted->fence, CounterOf(*request.fence, *use));
  admitted->uses.push_back(*std::move(use));
  return {};
}

Status TransferAdmission::ResolveLocal(const wire::TransferRequest& request,
                                       const BufferLists& lists, Admitted* admitted,
                                       PlanInput* input) const {
  AllocationList list(&input->local_allocations);
  admitted->uses.reserve(lists.local.size() + lists.remote.size());
  input->local.reserve(lists.local.size());
  auto buffers = registry_.AllByName(request.workload, lists.local);
  for (size_t i = 0; i < lists.local.size(); ++i) {
    const wire::BufferReference& reference = lists.local[i];
    if (!reference.peer.empty() ||
        (!reference.workload.empty() && reference.workload != request.workload)) {
      return Fail(ErrorCode::kPermissionDenied,
                  "local buffer '" + FormatReference(reference) + "' is not one of workload '" +
                      request.workload + "'",
                  "name it in `remote`", ListField("local", i));
    }
    auto use = registry_.Acquire(std::move(buffers[i]), request.workload, reference.buffer,
                                 reference.generation, admitted->status.id);
    if (!use && use.error().code == ErrorCode::kDraining) {  // another may have its name by now
      use = registry_.Acquire(request.workload, reference.buffer, reference.generation,
                              admitted->status.id);
    }
    if (!use) return Fail(std::move(use).error().WithField(ListField("local", i)));
    const registry::Buffer::Description& description = use->buffer().description();
    admitted->workload_generation = description.workload_generation;
    PlanBuffer buffer = {description.name, nullptr, &description.pieces, description.layout, {}};
    for (const auto& allocation : use->allocations()) {
      if (request.operation == wire::Operation::kRead) {
        RETURN_IF_ERROR(CheckWritable(*allocation, buffer, "local", i));
      }
      buffer.allocations.push_back(list.IndexOf(allocation.get(), allocation));
    }
    input->AddNicRegistration(use->nic_registration());
    input->local.push_back(std::move(buffer));
    admitted->uses.push_back(*std::move(use));
  }
  return {};
}

Status TransferAdmission::ResolveRemote(const wire::TransferRequest& request,
                                        const BufferLists& lists, Admitted* admitted,
                                        PlanInput* input) const {
  const std::string& peer = lists.remote.front().peer;
  for (size_t i = 1; i < lists.remote.size(); ++i) {
    if (lists.remote[i].peer == peer) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "one transfer has one peer, but '" + FormatReference(lists.remote[i]) +
                    "' is not of '" + peer + "'",
                "submit one transfer for each peer", ListField("remote", i));
  }
  return peer.empty() ? ResolveOwnRemote(request, lists, admitted, input)
                      : ResolvePeerRemote(request, lists, admitted, input);
}

Status TransferAdmission::ResolveOwnRemote(const wire::TransferRequest& request,
                                           const BufferLists& lists, Admitted* admitted,
                                           PlanInput* input) const {
  AllocationList list(&input->remote_allocations);
  input->remote.reserve(lists.remote.size());
  for (size_t i = 0; i < lists.remote.size(); ++i) {
    const wire::BufferReference& reference = lists.remote[i];
    const std::string& workload =
        reference.workload.empty() ? request.workload : reference.workload;
    auto use =
        registry_.Acquire(workload, reference.buffer, reference.generation, admitted->status.id);
    if (!use) return Fail(std::move(use).error().WithField(ListField("remote", i)));
    const registry::Buffer::Description& description = use->buffer().description();
    if (workload != request.workload) {
      RETURN_IF_ERROR(CheckAccess(description.access, request, reference, i));
    }
    PlanBuffer buffer = {{}, &reference, &description.pieces, description.layout, {}};
    for (const auto& allocation : use->allocations()) {
      if (request.operation == wire::Operation::kWrite) {
        RETURN_IF_ERROR(CheckWritable(*allocation, buffer, "remote", i));
      }
      buffer.allocations.push_back(list.IndexOf(allocation.get(), {allocation}));
    }
    input->remote.push_back(std::move(buffer));
    admitted->uses.push_back(*std::move(use));
  }
  return {};
}

Status TransferAdmission::ResolvePeerRemote(const wire::TransferRequest& request,
                                            const BufferLists& lists, Admitted* admitted,
                                            PlanInput* input) const {
  const std::string& peer = lists.remote.front().peer;
  const bool here = request.executor != wire::Executor::kPeer;
  ASSIGN_OR_RETURN(admitted->remotes,
                   peers_.Acquire(peer, lists.remote, here ? RemoteUse::kMove : RemoteUse::kName,
                                  admitted->deadline));
  AllocationList list(&input->remote_allocations);
  input->remote.reserve(admitted->remotes.size());
  for (size_t i = 0; i < admitted->remotes.size(); ++i) {
    const RemoteBuffer& remote = *admitted->remotes[i];
    RETURN_IF_ERROR(CheckAccess(remote.access, request, remote.reference, i));
    PlanBuffer buffer = {{}, &remote.reference, &remote.pieces, remote.layout, {}};
    for (const transport::RemoteAllocation& allocation : remote.allocations) {
      if (request.operation == wire::Operation::kWrite && allocation.mapped != nullptr) {
        RETURN_IF_ERROR(CheckWritable(*allocation.mapped, buffer, "remote", i));
      }
      buffer.allocations.push_back(list.IndexOf(allocation.mapped.get(), allocation));
    }
    input->remote.push_back(std::move(buffer));
  }
  return {};
}

}  // namespace gantry::engine
