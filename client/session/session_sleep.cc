// The part of WorkloadSession that suspends buffers and resumes them, on a GPU with other memory.
#include <algorithm>
#include <utility>

#include "client/session/workload_session.h"

namespace gantry::client {
namespace {

// Time for peers to let go of memory that is not current; they use it until then.
constexpr uint64_t kWithdrawMs = 1'000;

}  // namespace

// The buffer's memory on GPUs is of these from now on. REQUIRES that nobody else sees
// buffer->gpu_allocations.
void TakeGpuPieces(const std::vector<ResolvedPiece>& pieces, RegisteredBuffer* buffer) {
  MutexLock lock(buffer->mutex);
  buffer->asleep = false;
  buffer->gpu_pieces.clear();
  buffer->gpu_allocations.clear();
  for (const ResolvedPiece& piece : pieces) {
    const auto* const on_gpu = std::get_if<GpuPiece>(&piece);
    if (on_gpu == nullptr) continue;
    const GpuAllocation* const allocation = on_gpu->allocation.get();
    if (buffer->gpu_allocations.empty() || buffer->gpu_allocations.back() != allocation) {
      buffer->gpu_allocations.push_back(allocation);
    }
    buffer->gpu_pieces.push_back(*on_gpu);
  }
}

std::vector<BufferPointer> WorkloadSession::GpuBuffersNamed(
    const std::vector<std::string>* names) const {
  std::vector<BufferPointer> named;
  MutexLock lock(mutex_);
  for (const auto& [name, buffer] : gpu_buffers_) {
    if (names == nullptr || std::find(names->begin(), names->end(), name) != names->end()) {
      named.push_back(buffer);
    }
  }
  return named;
}

// The sidecar's descriptors keep GPU memory from being freed: it lets go of those, too, and gets
// what is there when the buffers are resumed.
Status WorkloadSession::Suspend(const std::vector<std::string>* names, uint64_t drain_ms) {
  RETURN_IF_ERROR(Suspension("suspend", names, drain_ms));
  const std::vector<BufferPointer> on_gpu = GpuBuffersNamed(names);
  if (on_gpu.empty()) return {};
  std::vector<std::string> released;
  for (const BufferPointer& buffer : on_gpu) {
    released.push_back(buffer->name);
    MutexLock lock(buffer->mutex);
    buffer->asleep = true;  // also without an answer: registering it again is right in each case
  }
  RETURN_IF_ERROR(Suspension("suspend", &released, drain_ms, "release"));
  for (const BufferPointer& buffer : on_gpu) {
    MutexLock lock(buffer->mutex);
    buffer->gpu_pieces.clear();
  }
  ReleaseUnusedGpuMemory();
  return {};
}

Status WorkloadSession::Resume(const std::vector<std::string>* names) {
  std::vector<BufferPointer> asleep;
  for (const BufferPointer& buffer : GpuBuffersNamed(names)) {
    bool is_asleep = false;
    {
      MutexLock lock(buffer->mutex);
      is_asleep = buffer->asleep;
    }
    // Memory that was mapped anew meanwhile is not what the sidecar would publish.
    if (is_asleep || !CheckGpuMemory(*buffer, "buffers")) asleep.push_back(buffer);
  }
  Status awake = WakeUp(asleep);
  if (!awake) {
    ReleaseUnusedGpuMemory();  // what was exported for them
    return awake;
  }
  return Suspension("resume", names, std::nullopt);
}

Status WorkloadSession::CheckHeld(const gantry_hold_spec& spec) {
  std::vector<BufferPointer> held;
  {
    MutexLock lock(mutex_);
    for (const gantry_hold_group& group : std::span(spec.groups, spec.group_count)) {
      for (const char* name : std::span(group.buffers, group.buffer_count)) {
        const auto found = name == nullptr ? gpu_buffers_.end() : gpu_buffers_.find(name);
        if (found != gpu_buffers_.end()) held.push_back(found->second);
      }
    }
  }
  std::shared_ptr<const GpuAllocation> last;
  for (const BufferPointer& buffer : held) {
    bool is_asleep = false;
    {
      MutexLock lock(buffer->mutex);
      is_asleep = buffer->asleep;
    }
    if (is_asleep) {
      return Fail(ErrorCode::kDraining, "buffer '" + buffer->name + "' is suspended",
                  "resume it before its blocks are promised", "groups");
    }
    Status current = CheckGpuMemory(*buffer, "groups", &last);
    if (!current) {
      const std::vector<std::string> names = {buffer->name};
      static_cast<void>(Suspend(&names, kWithdrawMs));  // what is stale is what to report
      return current;
    }
  }
  return {};
}

Status WorkloadSession::WakeUp(const std::vector<BufferPointer>& buffers) {
  if (buffers.empty()) return {};
  std::vector<BufferRequest> requests;
  for (const BufferPointer& buffer : buffers) {
    requests.push_back(buffer->again);
    RETURN_IF_ERROR(ResolvePieces(&requests.back(), "buffers/" + buffer->name + "/pieces"));
  }
  ASSIGN_OR_RETURN(const std::string body,
                   Post("/v1/buffers", RegistrationBody(options_.workload, requests), 0));
  ASSIGN_OR_RETURN(const std::vector<BufferAnswer> answers, ReadBuffers(body));
  std::vector<std::string> awake;
  std::vector<const BufferAnswer*> new_ones;
  for (const BufferAnswer& answer : answers) {
    const auto is_it = [&](const BufferPointer& buffer) { return buffer->id == answer.id; };
    if (std::any_of(buffers.begin(), buffers.end(), is_it)) {
      awake.push_back(answer.name);
    } else {
      new_ones.push_back(&answer);
    }
  }
  if (!new_ones.empty()) {
    // All of them sleep on: the caller may free the memory, which peers must not read then.
    for (const BufferAnswer* each : new_ones) {
      const std::string target = "/v1/buffers/" + UrlEscape(each->id) + "?drain_ms=0";
      static_cast<void>(Ask(
          {.method = "DELETE", .target = target, .repeatable = true, .timeout = options_.timeout}));
    }
    if (!awake.empty()) static_cast<void>(Suspension("suspend", &awake, 0, "release"));
    return Fail(ErrorCode::kStaleGeneration,
                "buffer '" + new_ones.front()->name + "' was removed at the sidecar while it slept",
                "unregister the handle, and register the memory again");
  }
  MutexLock lock(mutex_);
  for (size_t i = 0; i < buffers.size(); ++i) TakeGpuPieces(requests[i].pieces, buffers[i].get());
  ++gpu_buffers_epoch_;
  return {};
}

Status WorkloadSession::Suspension(std::string_view verb, const std::vector<std::string>* names,
                                   std::optional<uint64_t> drain_ms, std::string_view memory) {
  if (drain_ms) drain_ms = static_cast<uint64_t>(Bounded(*drain_ms).count());
  RETURN_IF_ERROR(Post("/v1/buffers:" + std::string(verb),
                       SuspensionBody(options_.workload, names, drain_ms, memory),
                       drain_ms.value_or(0)));
  return {};
}

}  // namespace gantry::client
