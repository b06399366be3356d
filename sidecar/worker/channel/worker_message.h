// What the pool and a worker say to each other over the control socket: one request at a time,
// one answer to each, both of the same binary. Plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "lib/base/result.h"
#include "sidecar/memory/memory_mapper.h"

namespace gantry::worker {

enum class RequestKind : uint32_t { kMap = 1, kUnmap = 2, kCompare = 3, kOpenGpu = 4 };

// kMap carries the allocation's descriptor. kCompare carries a list of `size` probes (probe_list.h
// says what is answered). kOpenGpu asks a worker that has no GPU to try once more, and is asked
// again until it tries no more: it is answered at once, while it tries with nothing said, then as a
// greeting is.
struct WorkerRequest {
  RequestKind kind = RequestKind::kMap;
  uint32_t writable = 0;
  uint64_t number = 0;  // of this request; the answer repeats it
  memory::MappingId mapping;
  uint64_t size = 0;
  // Of GPU memory.
  uint32_t on_gpu = 0;
  uint32_t gpu_export = 0;  // a wire::GpuExport
  uint32_t pinned = 0;      // of host memory: make it known to the GPU's driver
  int64_t exporter_pid = 0;
  uint64_t buffer_id = 0;
  uint64_t fd_offset = 0;
  char device_uuid[wire::kDeviceUuidBytesMax + 1] = {};
};

// Number 0 is the greeting of a worker that has started (worker_greeting.h); not ok: why it has no
// GPU.
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
// False when `bytes` is not one whole message.
bool ParseMessage(std::string_view bytes, WorkerRequest* request);
bool ParseMessage(std::string_view bytes, WorkerAnswer* answer);

}  // namespace gantry::worker
