// The part of TransferAdmission for transfers that the peer executes. It can do so only with
// memory that it may use as anybody's: what this sidecar's workloads granted to peers.
#include <algorithm>
#include <string>
#include <utility>

#include "sidecar/transfer/transfer_admission.h"

namespace gantry::engine {
namespace {

// To the plan a buffer is one piece [0, length) of an allocation of its own.
Status MakeWhole(uint64_t length, size_t index, PlanBuffer* buffer, PlanInput* input) {
  const uint64_t sizes[] = {length};
  ASSIGN_OR_RETURN(memory::PieceMap pieces, memory::PieceMap::Create({{0, 0, length}}, sizes));
  input->kept_pieces.push_back(std::make_shared<const memory::PieceMap>(std::move(pieces)));
  buffer->pieces = input->kept_pieces.back().get();
  buffer->allocations = {static_cast<uint32_t>(index)};
  return {};
}

Status CheckGranted(const registry::Buffer::Description& description, wire::Operation operation,
                    size_t index) {
  const bool read = operation == wire::Operation::kRead;
  if (read ? description.access.remote_write : description.access.remote_read) return {};
  return Fail(ErrorCode::kPermissionDenied,
              "buffer '" + description.name + "' does not grant " +
                  (read ? "remote_write" : "remote_read") +
                  ", which the peer needs to execute the transfer",
              "grant it at registration, in `access`, or let this sidecar execute",
              "/local/" + std::to_string(index));
}

// Why memory of the kind here cannot go this way, of which the peer says nothing; empty: it can.
std::string_view LocalReason(wire::Path path, bool local_on_gpu, const RemoteBuffer& remote) {
  const bool remote_on_host =
      std::any_of(remote.paths.begin(), remote.paths.end(), [](const wire::PathReport& report) {
        return report.available && InfoOf(report.path).memory == wire::PathMemory::kHostOnly;
      });
  const wire::PathMemory memory = InfoOf(path).memory;
  if (memory == wire::PathMemory::kSomeGpu && !local_on_gpu && remote_on_host) {
    return "neither buffer is GPU memory";
  }
  if (memory == wire::PathMemory::kHostOnly && local_on_gpu) {
    return "the local buffer is not host memory";
  }
  return {};
}

// What the peer is likely to take; it says so itself as soon as it began.
Result<wire::Path> LikelyPath(const RemoteBuffer& remote, bool local_on_gpu,
                              const std::vector<wire::Path>& require) {
  std::string reasons;
  for (const wire::PathReport& report : remote.paths) {
    const std::string_view here = LocalReason(report.path, local_on_gpu, remote);
    const bool allowed =
        require.empty() || std::find(require.begin(), require.end(), report.path) != require.end();
    if (report.available && allowed && here.empty()) return report.path;
    reasons += reasons.empty() ? "" : "; ";
    reasons += std::string(wire::NameOf(report.path)) + ": " +
               (!allowed           ? "require_path does not name it"
                : report.available ? std::string(here)
                                   : report.reason);
  }
  return Fail(ErrorCode::kPathUnavailable, "the peer has no path either: " + reasons, {},
              require.empty() ? "" : "/require_path");
}

// Whether the peer has a faster way than one that leads through the network: it sees the GPUs of
// both sides. Of its own it sees those that it has registered memory of.
bool PeerIsNearer(const wire::TransferRequest& request, const Admitted& admitted,
                  const PlanInput& input) {
  if (admitted.remotes.empty()) return false;
  const RemoteBuffer& remote = *admitted.remotes.front();
  const auto& require = request.require_path;
  const bool allowed = require.empty() ||
                       std::find(require.begin(), require.end(), wire::Path::kIpc) != require.end();
  const bool ipc = std::any_of(remote.paths.begin(), remote.paths.end(), [](const auto& report) {
    return report.path == wire::Path::kIpc && report.available;
  });
  if (!allowed || !ipc || remote.peer_gpus == nullptr || remote.peer_gpus->empty()) return false;
  const std::vector<std::string>& gpus = *remote.peer_gpus;
  return std::all_of(
      input.local_allocations.begin(), input.local_allocations.end(), [&](const auto& local) {
        return local->kind() != wire::MemoryKind::kGpu ||
               std::find(gpus.begin(), gpus.end(), local->gpu().device_uuid) != gpus.end();
      });
}

// Why not by ipc from here.
std::string IpcReason(const PathChoice& choice) {
  for (const wire::PathReport& report : choice.reports) {
    if (report.path == wire::Path::kIpc) return report.reason;
  }
  return "there is no ipc here";
}

// The transfer goes another way, and says so.
std::vector<wire::PathReport> WithIpcReason(std::vector<wire::PathReport> reports,
                                            const Error& refusal) {
  for (wire::PathReport& report : reports) {
    if (report.path != wire::Path::kIpc) continue;
    if (!report.reason.empty()) report.reason += "; ";
    report.reason += "the peer, which is nearer, cannot execute it: " + refusal.message;
  }
  return reports;
}

}  // namespace

Result<PathChoice> TransferAdmission::Choose(const wire::TransferRequest& request,
                                             const BufferLists& lists, const PathQuestion& question,
                                             Admitted* admitted, PlanInput* input) const {
  if (request.executor == wire::Executor::kPeer) {
    RETURN_IF_ERROR(Delegate(request, lists, "", admitted, input));
    return PathChoice();
  }
  auto selected = SelectPath(transports_, question);
  if (request.executor == wire::Executor::kSelf) return selected;
  if (!selected) {
    if (Delegate(request, lists, selected.error().message, admitted, input)) return PathChoice();
    return selected;
  }
  if (!selected->transport->traits().addresses_buffers ||
      !PeerIsNearer(request, *admitted, *input)) {
    return selected;
  }
  PlanInput of_peer = *input;
  Status asked = Delegate(request, lists, IpcReason(*selected), admitted, &of_peer);
  if (!asked) {
    selected->reports = WithIpcReason(std::move(selected->reports), asked.error());
    return selected;
  }
  *input = std::move(of_peer);
  return PathChoice();
}

Status TransferAdmission::AdmitHere(const wire::TransferRequest& request, const BufferLists& lists,
                                    const Error& refusal, Admitted* admitted) const {
  if (request.executor != wire::Executor::kAny) return Fail(refusal);
  wire::TransferRequest here = request;
  here.executor = wire::Executor::kSelf;
  *admitted = Anew(*admitted);  // what it holds is not there twice
  if (!AdmitOver(here, lists, admitted)) return Fail(refusal);
  admitted->status.paths = WithIpcReason(admitted->status.paths, refusal);
  return {};
}

Status TransferAdmission::Delegate(const wire::TransferRequest& request, const BufferLists& lists,
                                   std::string_view why_not_here, Admitted* admitted,
                                   PlanInput* input) const {
  const std::string& peer = lists.remote.front().peer;
  if (peer.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the remote buffers are this sidecar's own: there is no peer to execute it",
                "leave out executor", "/executor");
  }
  if (const Status can = delegated_.CanExecute(peer); !can) {
    return Fail(Error(can.error()).WithField("/executor"));
  }
  const bool local_on_gpu =
      !lists.local.empty() &&
      admitted->uses.front().allocations().front()->kind() == wire::MemoryKind::kGpu;
  const auto path = LikelyPath(*admitted->remotes.front(), local_on_gpu, request.require_path);
  if (!path) return Fail(path.error());
  auto delegation = std::make_shared<Delegation>();
  delegation->peer = peer;
  delegation->require_path = request.require_path;
  delegation->why_not_here = why_not_here;
  // Local buffers were put in use in their order, before the fence's.
  input->local_allocations.clear();
  input->remote_allocations.clear();
  for (size_t i = 0; i < lists.local.size(); ++i) {
    const registry::Buffer& buffer = admitted->uses[i].buffer();
    const registry::Buffer::Description& description = buffer.description();
    RETURN_IF_ERROR(CheckGranted(description, request.operation, i));
    RETURN_IF_ERROR(MakeWhole(buffer.length(), i, &input->local[i], input));
    input->local_allocations.push_back(admitted->uses[i].allocations().front());
    delegation->local.push_back(
        {{}, description.workload, description.name, description.generation});
  }
  for (size_t i = 0; i < admitted->remotes.size(); ++i) {
    const RemoteBuffer& remote = *admitted->remotes[i];
    RETURN_IF_ERROR(MakeWhole(remote.length, i, &input->remote[i], input));
    input->remote_allocations.emplace_back();
    wire::BufferReference& reference = delegation->remote.emplace_back(remote.reference);
    reference.peer.clear();
  }
  input->of_whole_buffers = true;
  admitted->delegation = std::move(delegation);
  TransferStatus& status = admitted->status;
  status.executed_by_peer = true;
  status.paths = admitted->remotes.front()->paths;
  // Nothing here uses the peer's memory. To keep it mapped would keep the session that it came
  // through, and two sidecars that each wait for the end of the other's would wait for ever.
  for (size_t i = 0; i < admitted->remotes.size(); ++i) {
    auto& remote = admitted->remotes[i];
    auto known = std::make_shared<RemoteBuffer>();
    known->reference = remote->reference;
    known->peer_registration_id = remote->peer_registration_id;
    input->remote[i].remote = &known->reference;
    remote = std::move(known);
  }
  status.path = *path;
  return {};
}

}  // namespace gantry::engine
