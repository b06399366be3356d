// The messages between the pool and a worker over the control socket. One request at a time, one
// answer each. Both ends are the same binary. Plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "lib/base/result.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::worker {

enum class RequestKind : uint32_t { kMap = 1, kUnmap = 2, kCompare = 3, kOpenGpu = 4 };

// kMap carries the allocation's descriptor. kCompare carries a list of `size` probes; probe_list.h
// describes the answer. kOpenGpu makes a worker without a GPU try again, and is repeated until the
// attempt ends. Its answer comes at once: empty during the attempt, then like a greeting.
struct WorkerRequest {
  RequestKind kind = RequestKind::kMap;
  uint32_t writable = 0;
  uint64_t number = 0;  // the request's number; the answer repeats it
  memory::MappingId mapping;
  uint64_t size = 0;
  // The rest is for GPU memory, except `pinned` and `unsealed`.
  uint32_t on_gpu = 0;
  uint32_t gpu_export = 0;  // a wire::GpuExport
  uint32_t pinned = 0;      // for host memory: register it with the GPU driver
  uint32_t unsealed = 0;    // for host memory: its file can shrink
  int64_t exporter_pid = 0;
  uint64_t buffer_id = 0;
  uint64_t fd_offset = 0;
  char device_uuid[wire::kDeviceUuidBytesMax + 1] = {};
};

// Number 0 is the greeting of a started worker (worker_greeting.h). Not ok: why it has no GPU.
struct WorkerAnswer {
  uint64_t number = 0;
  uint32_t ok = 1;
  uint32_t code = 0;  // ErrorCode when not ok
  char message[2048] = {};
  char hint[256] = {};
};
static_assert(std::is_trivially_copyable_v<WorkerRequest>);
static_assert(std::is_trivially_copyable_v<WorkerAnswer>);

void SetGpuFacts(const wire::GpuFacts& facts, WorkerRequest* request);
wire::GpuFacts GpuFactsOf(const WorkerRequest& request);

WorkerAnswer AnswerOf(uint64_t number, const Status& status);
Status StatusOf(const WorkerAnswer& answer);

template <typename Message>
std::string_view BytesOf(const Message& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}
// Return false unless `bytes` is exactly one message.
bool ParseMessage(std::string_view bytes, WorkerRequest* request);
bool ParseMessage(std::string_view bytes, WorkerAnswer* answer);

}  // namespace gantry::worker
