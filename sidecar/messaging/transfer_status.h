// What the outside may know of a transfer, as a value: a snapshot that the engine made.
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

// kRunning: also while the notification of a transfer, all of whose bytes moved, is delivered.
// kStopping: cancelled, expired or failed, but bytes may still move; the outcome comes when quiet.
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
  uint64_t admit_us = 0;  // parsed until handed to the engine: checks, resolving, planning
  uint64_t fence_us = 0;  // until its fence was reached
  uint64_t queue_us = 0;  // until the first chunk was posted
  uint64_t move_us = 0;   // until the last chunk was finished or quiet
  uint64_t copy_us = 0;   // summed over the copy workers
  uint64_t total_us = 0;  // admit to terminal
};

// Of a transfer between GPUs that this sidecar executes: how its jobs are copied.
struct GpuCopies {
  uint64_t by_engine = 0;
  uint64_t by_kernel = 0;
  std::string_view reason;  // for the last one; lives for ever
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
  // The peer that asked this sidecar to move its bytes; empty: a workload here did.
  std::string requested_by;
  wire::Path path = wire::Path::kShm;
  SharedReports paths;  // every path, fastest first, and why the faster ones not
  uint64_t bytes = 0;   // to move
  uint64_t bytes_moved = 0;
  uint64_t staged_bytes = 0;  // of these: of GPUs here, through host memory to the network
  uint64_t chunks = 0;        // after merging and cutting
  uint64_t chunks_moved = 0;
  uint64_t descriptors_in = 0;
  uint64_t descriptors_out = 0;  // after merging contiguous runs
  int workers = 0;
  std::optional<GpuCopies> gpu_copies;
  int priority = 0;
  int retries = 0;  // 1: begun again, because its descriptions of remote buffers were stale
  TransferTimings timings;
  std::optional<Error> error;  // why it failed, was cancelled or expired
  // Of a transfer that did not succeed: indices into the request's block lists, or into its
  // ranges, that may not have arrived whole; null: none, or (in lists of transfers) not told. When
  // truncated, there are more, and any item may be among them.
  std::shared_ptr<const std::vector<uint32_t>> failed_items;
  bool failed_items_truncated = false;
  bool by_blocks = false;
  std::string user_data;
  // Of a transfer with a notification that succeeded: whether it was delivered, or why not.
  std::optional<bool> notified;
  std::optional<Error> notify_error;
};

}  // namespace gantry::engine
