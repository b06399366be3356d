#include "client/session/buffer_sleep.h"

#include <algorithm>
#include <span>
#include <utility>

#include "lib/base/url_escape.h"

namespace gantry::client {
namespace {

// Time for peers to let go of memory that is not current; they use it until then.
constexpr uint64_t kWithdrawMs = 1'000;

}  // namespace

// The sidecar's descriptors keep GPU memory from being freed: it lets go of those, too, and gets
// what is there when the buffers are resumed.
Status BufferSleep::Suspend(const std::vector<std::string>* names, uint64_t drain_ms) {
  RETURN_IF_ERROR(Suspension("suspend", names, drain_ms));
  const std::vector<BufferPointer> on_gpu = buffers_.OnGpu(names);
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

Status BufferSleep::Resume(const std::vector<std::string>* names) {
  std::vector<BufferPointer> asleep;
  for (const BufferPointer& buffer : buffers_.OnGpu(names)) {
    // Memory that was mapped anew meanwhile is not what the sidecar would publish.
    if (IsAsleep(*buffer) || !CheckGpuMemory(*buffer, "buffers")) asleep.push_back(buffer);
  }
  Status awake = WakeUp(asleep);
  if (!awake) {
    ReleaseUnusedGpuMemory();  // what was exported for them
    return awake;
  }
  return Suspension("resume", names, std::nullopt);
}

Status BufferSleep::CheckHeld(const gantry_hold_spec& spec) {
  std::vector<BufferPointer> held;
  for (const gantry_hold_group& group : std::span(spec.groups, spec.group_count)) {
    for (const char* name : std::span(group.buffers, group.buffer_count)) {
      BufferPointer buffer = name == nullptr ? nullptr : buffers_.OnGpu(name);
      if (buffer != nullptr) held.push_back(std::move(buffer));
    }
  }
  std::shared_ptr<const GpuAllocation> last;
  for (const BufferPointer& buffer : held) {
    if (IsAsleep(*buffer)) {
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

Status BufferSleep::WakeUp(const std::vector<BufferPointer>& buffers) {
  if (buffers.empty()) return {};
  std::vector<BufferRequest> requests;
  for (const BufferPointer& buffer : buffers) {
    requests.push_back(buffer->again);
    RETURN_IF_ERROR(
        locator_.ResolvePieces(&requests.back(), "buffers/" + buffer->name + "/pieces"));
  }
  ASSIGN_OR_RETURN(const std::string body,
                   link_.Post("/v1/buffers", RegistrationBody(link_.workload(), requests), 0));
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
      static_cast<void>(link_.Exchange(
          {.method = "DELETE", .target = target, .repeatable = true, .timeout = link_.timeout()}));
    }
    if (!awake.empty()) static_cast<void>(Suspension("suspend", &awake, 0, "release"));
    return Fail(ErrorCode::kStaleGeneration,
                "buffer '" + new_ones.front()->name + "' was removed at the sidecar while it slept",
                "unregister the handle, and register the memory again");
  }
  buffers_.TakePieces(buffers, requests);
  return {};
}

Status BufferSleep::Suspension(std::string_view verb, const std::vector<std::string>* names,
                               std::optional<uint64_t> drain_ms, std::string_view memory) {
  if (drain_ms) drain_ms = static_cast<uint64_t>(SidecarLink::Bounded(*drain_ms).count());
  RETURN_IF_ERROR(link_.Post("/v1/buffers:" + std::string(verb),
                             SuspensionBody(link_.workload(), names, drain_ms, memory),
                             drain_ms.value_or(0)));
  return {};
}

void BufferSleep::ReleaseUnusedGpuMemory() {
  if (!link_.silence().IsOn())
    link_.ReleaseFds(locator_.gpu().TakeUnused());  // else with those of the next one
}

}  // namespace gantry::client
