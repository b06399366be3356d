// A snapshot of a transfer for clients, as a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/messaging/shared_reports.h"
#include "sidecar/worker/channel/gpu_copy_reason.h"

namespace gantry::engine {

// kRunning includes the delivery of the notification, after all bytes have moved. kStopping:
// cancelled, expired or failed, but bytes may still move; the outcome follows when they cannot.
enum class TransferState {
  kQueued,
  kRunning,
  kStopping,
  kSucceeded,
  kFailed,
  kCancelled,
  kExpired
};
std::string_view NameOf(TransferState state);  // "queued" ... "expired"
constexpr bool IsTerminal(TransferState state) { return state >= TransferState::kSucceeded; }

struct TransferTimings {
  int64_t accepted_unix_ms = 0;
  uint64_t admit_us = 0;  // from parsing to the engine: checks, resolving, planning
  uint64_t fence_us = 0;  // then until the fence was reached
  uint64_t queue_us = 0;  // then until the first chunk was posted
  uint64_t move_us = 0;   // then until the last chunk finished or became quiet
  uint64_t copy_us = 0;   // summed over the copy workers
  uint64_t total_us = 0;  // from admission to the terminal state
};

// How this sidecar's workers copied GPU memory: jobs by each means.
struct GpuCopies {
  uint64_t by_engine = 0;
  uint64_t by_kernel = 0;
  std::string_view reason;  // the last job's; a static string
  std::array<uint64_t, transport::kGpuCopyReasons> by_reason = {};

  std::string_view plan() const {
    return by_kernel == 0 ? "engines" : by_engine == 0 ? "kernel" : "both";
  }
};

struct TransferStatus {
  std::string id;
  std::string workload;
  std::string peer;  // empty: this sidecar
  wire::Operation operation = wire::Operation::kRead;
  TransferState state = TransferState::kQueued;
  bool executed_by_peer = false;  // the peer moves the bytes, at this sidecar's request
  // The peer for which this sidecar executes the transfer; empty: its own workload's.
  std::string requested_by;
  wire::Path path = wire::Path::kShm;
  SharedReports paths;  // every path, fastest first, and why the faster ones were not taken
  uint64_t bytes = 0;   // to move
  uint64_t bytes_moved = 0;
  uint64_t staged_bytes = 0;  // part of bytes_moved: from or to local GPUs, through host memory
  uint64_t chunks = 0;        // after merging and cutting
  uint64_t chunks_moved = 0;
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;  // after merging contiguous runs
  int workers = 0;
  std::optional<GpuCopies> gpu_copies;
  int priority = 0;
  int retries = 0;  // 1: retried, because descriptions of remote buffers were stale
  TransferTimings timings;
  std::optional<Error> error;  // why it failed, was cancelled or expired
  // Set when the transfer did not succeed: indices into the request's block lists or ranges whose
  // data may be incomplete. Null: none, or omitted (in lists of transfers). If truncated, any other
  // item may be incomplete, too.
  std::shared_ptr<const std::vector<uint32_t>> failed_items;
  bool failed_items_truncated = false;
  bool by_blocks = false;
  std::string user_data;
  // Set when a transfer with a notification succeeded: whether it was delivered, and why not.
  std::optional<bool> notified;
  std::optional<Error> notify_error;
};

}  // namespace gantry::engine
