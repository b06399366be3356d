// The part of WorkloadSession that is about transfers.
#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "client/session/message_bodies.h"
#include "client/session/transfer_body.h"
#include "client/session/workload_session.h"
#include "lib/base/name.h"

namespace gantry::client {
namespace {

// One request waits no longer than this, so that the sidecar's limits on waits are no concern.
constexpr uint64_t kWaitSliceMs = 10'000;
// How often a transfer is looked at where the sidecar lets no more requests wait.
constexpr uint64_t kLooksAgainMs = 20;

// Time that is left to wait; GANTRY_FOREVER stays what it is.
class Remaining {
 public:
  explicit Remaining(uint64_t timeout_ms) : timeout_ms_(timeout_ms) {}
  uint64_t ms() const {
    if (timeout_ms_ == GANTRY_FOREVER) return GANTRY_FOREVER;
    const auto passed = std::chrono::duration_cast<milliseconds>(Clock::now() - start_).count();
    return timeout_ms_ - std::min(timeout_ms_, static_cast<uint64_t>(passed));
  }

 private:
  const uint64_t timeout_ms_;
  const TimePoint start_ = Clock::now();
};

// The request may go through without its wait.
bool IsRefusedWait(const Result<std::string>& body) {
  return !body && body.error().code == ErrorCode::kResourceExhausted;
}

bool IsOver(const TransferAnswer& answer) { return answer.status.state >= GANTRY_SUCCEEDED; }

// For a transfer that has groups.
Status CheckGroups(const gantry_transfer_spec& spec) {
  const auto wrong = [](std::string what, std::string field) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
  };
  if (spec.view == nullptr) return wrong("groups without a view", "view");
  if (spec.groups == nullptr) return wrong("groups is NULL", "groups");
  if (spec.block_count != 0 || spec.range_count != 0) {
    return wrong("groups beside blocks or ranges", "groups");
  }
  for (size_t i = 0; i < spec.group_count; ++i) {
    const gantry_block_group& group = spec.groups[i];
    const std::string field = "groups/" + std::to_string(i);
    if ((group.local_count != 0 && group.local_blocks == nullptr) ||
        (group.remote_count != 0 && group.remote_blocks == nullptr)) {
      return wrong("a list of blocks is NULL", field);
    }
    if (group.layer_count == 0 && group.first_layer != 0) {
      return wrong("there is a first layer, and layer_count is 0", field);
    }
    if (group.layer_count != 0 && group.first_layer > UINT64_MAX - group.layer_count) {
      return wrong("there are no such layers", field);
    }
  }
  return {};
}

Status CheckSpec(const gantry_transfer_spec& spec) {
  const auto wrong = [](std::string what, std::string field) {
    return Fail(ErrorCode::kInvalidArgument, std::move(what), {}, std::move(field));
  };
  if (spec.operation != GANTRY_READ && spec.operation != GANTRY_WRITE) {
    return wrong(std::to_string(spec.operation) + " is neither GANTRY_READ nor GANTRY_WRITE",
                 "operation");
  }
  if (spec.executor < GANTRY_EXECUTOR_ANY || spec.executor > GANTRY_EXECUTOR_PEER) {
    return wrong(std::to_string(spec.executor) + " is none of GANTRY_EXECUTOR_ANY, _SELF and _PEER",
                 "executor");
  }
  if (spec.view != nullptr && (spec.local_count != 0 || spec.remote_count != 0)) {
    return wrong("both a view and buffers", "view");
  }
  if (spec.view == nullptr && (spec.remote == nullptr || spec.remote_count == 0)) {
    return wrong("no remote buffer", "remote");
  }
  for (size_t i = 0; i < spec.remote_count; ++i) {
    if (spec.remote[i] == nullptr) return wrong("a remote buffer is NULL", "remote");
  }
  if (spec.block_count != 0 && spec.range_count != 0) {
    return wrong("both blocks and ranges", "ranges");
  }
  if (spec.require_path != nullptr && *spec.require_path == '\0') {
    return wrong("no path is named; NULL stands for any", "require_path");
  }
  if (spec.notify != nullptr) RETURN_IF_ERROR(CheckMessage(*spec.notify));
  if (spec.group_count != 0) return CheckGroups(spec);
  if (spec.range_count == 0 && spec.block_count == 0 && spec.local_blocks == nullptr) {
    return wrong("neither blocks nor ranges", "ranges");
  }
  if (spec.range_count == 0 && (spec.local_blocks == nullptr || spec.remote_blocks == nullptr)) {
    return wrong("block_count without both lists of blocks", "local_blocks");
  }
  if (spec.range_count != 0 && spec.ranges == nullptr) return wrong("ranges is NULL", "ranges");
  return {};
}

// The memory behind a local buffer may have gone since it was registered.
Status CheckLocal(const RegisteredBuffer& buffer, std::string field) {
  const bool closed = std::any_of(buffer.arenas.begin(), buffer.arenas.end(),
                                  [](const auto& arena) { return arena->closed.load(); });
  if (buffer.registered && !closed) return {};
  return Fail(ErrorCode::kUnregistered, "buffer '" + buffer.name + "' is no longer registered",
              "register it again", std::move(field));
}

std::string ReferenceOf(const RegisteredBuffer& buffer) {
  return buffer.name + "@" + buffer.generation;
}

// Whether a transfer by a view moves blocks of the pair that is `layer` in its group.
bool Moves(const gantry_transfer_spec& spec, uint64_t group, uint64_t layer) {
  if (spec.range_count != 0) return true;
  if (spec.group_count == 0) return group == 0;
  const auto groups = std::span(spec.groups, spec.group_count);
  return std::any_of(groups.begin(), groups.end(), [&](const gantry_block_group& moved) {
    return moved.group == group &&
           (moved.layer_count == 0 ||
            (layer >= moved.first_layer && layer - moved.first_layer < moved.layer_count));
  });
}

}  // namespace

TransferAnswer TransferRecord::last() const {
  MutexLock lock(mutex_);
  return last_;
}

gantry_transfer_status TransferRecord::status() const {
  MutexLock lock(mutex_);
  return last_.status;
}

bool TransferRecord::is_over() const {
  MutexLock lock(mutex_);
  return IsOver(last_);
}

void TransferRecord::Learn(TransferAnswer answer) {
  MutexLock lock(mutex_);
  if (!IsOver(last_)) last_ = std::move(answer);
}

Status WorkloadSession::CheckGpuMemory(RegisteredBuffer& buffer, std::string field,
                                       std::shared_ptr<const GpuAllocation>* last) {
  if (!buffer.on_gpu) return {};
  MutexLock lock(buffer.mutex);
  for (const GpuPiece& piece : buffer.gpu_pieces) {
    if (last != nullptr && std::exchange(*last, piece.allocation) == piece.allocation) continue;
    if (Status current = GpuResolver::CheckCurrent(piece); !current) {
      return Fail(std::move(current)
                      .error()
                      .WithContext("buffer '" + buffer.name + "'")
                      .WithField(std::move(field)));
    }
  }
  return {};
}

// Of the session's epoch, so that each of them is registered, and there.
const ViewRecord::GpuBuffers& WorkloadSession::GpuBuffersOf(ViewRecord& view) {
  ViewRecord::GpuBuffers& known = view.gpu_buffers();
  if (known.epoch == gpu_buffers_epoch_) return known;
  known = {};
  std::set<const GpuAllocation*> seen;
  for (const ViewAnswer::Pair& pair : view.answer().pairs) {
    const auto found = gpu_buffers_.find(pair.local);
    const BufferPointer buffer = found == gpu_buffers_.end() ? nullptr : found->second;
    known.of_pairs.push_back(buffer);
    if (buffer == nullptr || pair.group != 0) continue;
    const size_t before = seen.size();
    seen.insert(buffer->gpu_allocations.begin(), buffer->gpu_allocations.end());
    if (seen.size() > before) known.for_group_0.push_back(buffer);
  }
  known.epoch = gpu_buffers_epoch_;
  return known;
}

std::vector<BufferPointer> WorkloadSession::GpuBuffersToCheck(ViewRecord& view,
                                                              const gantry_transfer_spec& spec) {
  std::vector<BufferPointer> buffers;
  const ViewRecord::GpuBuffers& known = GpuBuffersOf(view);
  const auto add = [&](const std::weak_ptr<RegisteredBuffer>& weak) {
    if (BufferPointer buffer = weak.lock()) buffers.push_back(std::move(buffer));
  };
  if (spec.group_count == 0 && spec.range_count == 0) {
    std::for_each(known.for_group_0.begin(), known.for_group_0.end(), add);
    return buffers;
  }
  std::map<uint64_t, uint64_t> layers;  // seen of each group
  for (size_t i = 0; i < known.of_pairs.size(); ++i) {
    const uint64_t group = view.answer().pairs[i].group;
    const uint64_t layer = spec.group_count == 0 ? 0 : layers[group]++;
    if (Moves(spec, group, layer)) add(known.of_pairs[i]);
  }
  return buffers;
}

Status WorkloadSession::CheckGpuMemoryOf(ViewRecord& view, const gantry_transfer_spec& spec) {
  std::vector<BufferPointer> buffers;
  {
    MutexLock lock(mutex_);
    if (gpu_buffers_.empty()) return {};
    buffers = GpuBuffersToCheck(view, spec);
  }
  std::shared_ptr<const GpuAllocation> last;
  for (const BufferPointer& buffer : buffers) {
    RETURN_IF_ERROR(CheckGpuMemory(*buffer, "view", &last));
  }
  return {};
}

Result<std::shared_ptr<TransferRecord>> WorkloadSession::Submit(const gantry_transfer_spec& spec,
                                                                const SubmitHandles& handles,
                                                                uint64_t wait_ms) {
  RETURN_IF_ERROR(CheckSpec(spec));
  std::vector<std::string> references;
  for (size_t i = 0; i < handles.local.size(); ++i) {
    RegisteredBuffer& buffer = *handles.local[i];
    RETURN_IF_ERROR(CheckLocal(buffer, "local/" + std::to_string(i)));
    RETURN_IF_ERROR(CheckGpuMemory(buffer, "local/" + std::to_string(i)));
    references.push_back(ReferenceOf(buffer));
  }
  if (handles.view) RETURN_IF_ERROR(CheckGpuMemoryOf(*handles.view, spec));
  TransferObjects objects = {references, handles.view ? handles.view->id() : "", ""};
  if (handles.fence) {
    RETURN_IF_ERROR(CheckLocal(*handles.fence, "fence"));
    RETURN_IF_ERROR(CheckGpuMemory(*handles.fence, "fence"));
    objects.fence = ReferenceOf(*handles.fence);
  }
  std::string id = spec.id != nullptr
                       ? spec.id
                       : "t-" + generation() + "-" + std::to_string(transfers_made_.fetch_add(1));
  RETURN_IF_ERROR(CheckName(id, "id"));
  const Remaining remaining(wait_ms);
  const uint64_t slice = std::min(wait_ms, kWaitSliceMs);
  const std::string target = "/v1/transfers?wait_ms=" + std::to_string(slice);
  const std::string request = TransferBody(workload(), id, spec, objects);
  HttpRequest post = {.method = "POST",
                      .target = target,
                      .body = request,
                      .body_type = kCborBodyType,
                      .answer_type = kCborBodyType,
                      .repeatable = true,  // it names what it makes
                      .timeout = options_.timeout + milliseconds(static_cast<int64_t>(slice))};
  Result<std::string> body = Ask(post);
  const bool is_refused = slice > 0 && IsRefusedWait(body);
  if (is_refused) {
    post.target = "/v1/transfers?wait_ms=0";
    body = Ask(post);
  }
  if (!body) return Fail(std::move(body).error());
  ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(*std::move(body)));
  auto transfer = std::make_shared<TransferRecord>(std::move(id));
  transfer->Learn(std::move(answer));
  // What goes wrong from here on shows when the transfer is waited for: it has been accepted.
  if (is_refused || wait_ms > slice) static_cast<void>(Await(*transfer, remaining.ms()));
  return transfer;
}

std::string WorkloadSession::TransferTarget(const TransferRecord& transfer,
                                            uint64_t wait_ms) const {
  return "/v1/transfers/" + UrlEscape(transfer.id()) + "?workload=" + UrlEscape(workload()) +
         "&wait_ms=" + std::to_string(wait_ms);
}

Status WorkloadSession::Await(TransferRecord& transfer, uint64_t timeout_ms) {
  const Remaining remaining(timeout_ms);
  bool may_wait = true;
  for (bool asked = false; !transfer.is_over(); asked = true) {
    const uint64_t left = remaining.ms();
    if (asked && left == 0) return {};
    const uint64_t slice = may_wait ? std::min(left, kWaitSliceMs) : 0;
    const std::string target = TransferTarget(transfer, slice);
    auto body = Ask({.method = "GET",
                     .target = target,
                     .answer_type = kCborBodyType,
                     .repeatable = true,
                     .timeout = options_.timeout + milliseconds(slice)});
    const bool is_refused = slice > 0 && IsRefusedWait(body);
    if (!body && !is_refused) return Fail(std::move(body).error());
    if (!is_refused) {
      ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(*std::move(body)));
      transfer.Learn(std::move(answer));
      if (!may_wait && !transfer.is_over()) {
        std::this_thread::sleep_for(milliseconds(std::min(left, kLooksAgainMs)));
      }
    }
    may_wait = !is_refused;
  }
  return {};
}

Status WorkloadSession::Cancel(TransferRecord& transfer, uint64_t timeout_ms) {
  if (transfer.is_over()) return {};
  const Remaining remaining(timeout_ms);
  const uint64_t slice = std::min(timeout_ms, kWaitSliceMs);
  const std::string target = TransferTarget(transfer, slice);
  ASSIGN_OR_RETURN(std::string body, Ask({.method = "DELETE",
                                          .target = target,
                                          .answer_type = kCborBodyType,
                                          .repeatable = true,
                                          .timeout = options_.timeout + milliseconds(slice)}));
  ASSIGN_OR_RETURN(TransferAnswer answer, ReadTransfer(std::move(body)));
  transfer.Learn(std::move(answer));
  return remaining.ms() > 0 ? Await(transfer, remaining.ms()) : Status();
}

}  // namespace gantry::client
