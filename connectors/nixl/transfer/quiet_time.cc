#include "connectors/nixl/transfer/quiet_time.h"

#include "client/include/gantry.h"
#include "lib/wire/session_times.h"

namespace gantry::nixl {
namespace {

// A sidecar's copy workers end with it, a moment after its sockets.
constexpr milliseconds kWorkersEnd{1'000};
// A sidecar that lives on, and lost this workload alone, stops its transfers.
constexpr milliseconds kOwn = wire::kQuiesceMax + kWorkersEnd;
// The peer applies the parts of a write that it has got.
constexpr milliseconds kTcpWrite = wire::kPartLease + wire::kPartLeaseMargin + kWorkersEnd;
// The peer copies out of its staging memory.
constexpr milliseconds kBounceWrite = wire::kQueuePairLease + wire::kStageCopyEnd + kWorkersEnd;
// A peer that moves the bytes itself sees the loss, and stops within this.
constexpr milliseconds kPeer =
    wire::kSilenceMax + wire::kExecutionEndMax + wire::kExecutionEndCall + kWorkersEnd;
static_assert(kOwn <= kTcpWrite && kTcpWrite <= kBounceWrite && kBounceWrite <= kPeer);

}  // namespace

milliseconds QuietTimeAfterLoss(Operation operation, int executor, std::string_view path) {
  if (executor != GANTRY_EXECUTOR_SELF) return kPeer;
  if (operation == Operation::kRead) return kOwn;
  if (path == "tcp") return kTcpWrite;
  if (path == "shm" || path == "ipc" || path == "rdma") return kOwn;
  return kBounceWrite;
}

}  // namespace gantry::nixl
