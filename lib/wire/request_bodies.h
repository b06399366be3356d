// The small bodies of the REST API as plain values, and what reads them. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/codec/schema_reader.h"
#include "lib/wire/notification.h"

namespace gantry::wire {

// PUT /v1/workloads/{name}
struct WorkloadBody {
  std::optional<std::string> engine_id;  // at most 256 bytes
  std::optional<uint64_t> ttl_ms;
};

// POST /v1/buffers:resolve
struct ResolveBody {
  std::string workload;
  std::string buffer;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// POST /v1/buffers:suspend and :resume
struct BufferNamesBody {
  std::string workload;
  std::optional<std::vector<std::string>> buffers;  // absent: all of the workload's
  std::optional<uint64_t> drain_ms;                 // of :suspend alone
  bool releases_memory = false;                     // likewise: "memory": "release"
};

// PUT /v1/peers/{name}
struct PeerBody {
  std::string address;
  std::string node_id;  // of the peer's node; empty: not said
};

// POST /v1/completions:poll
struct PollBody {
  std::string workload;
  std::optional<uint64_t> cursor;  // absent: now
  std::optional<uint64_t> max;
  std::optional<uint64_t> wait_ms;
  std::optional<uint64_t> acknowledge;  // absent: cursor
  bool has_transfers = true;            // "transfers": "all" or "none"
};

// POST /v1/notifications
struct NotificationBody {
  std::string id;  // empty: one is made up
  std::string workload;
  std::string peer;  // empty: this sidecar
  NotificationContent content;
  std::optional<uint64_t> deadline_ms;
};

Result<WorkloadBody> ReadWorkloadBody(BodyFormat format, std::string_view body);
Result<ResolveBody> ReadResolveBody(BodyFormat format, std::string_view body);
Result<BufferNamesBody> ReadSuspendBody(BodyFormat format, std::string_view body);
Result<BufferNamesBody> ReadResumeBody(BodyFormat format, std::string_view body);
Result<PeerBody> ReadPeerBody(BodyFormat format, std::string_view body);
Result<PollBody> ReadPollBody(BodyFormat format, std::string_view body);
Result<NotificationBody> ReadNotificationBody(BodyFormat format, std::string_view body);

}  // namespace gantry::wire
