// What one sidecar asks another to move for it. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/codec/buffer_types.h"
#include "lib/wire/transfer_request.h"

namespace gantry::wire {

// Nobody may need longer to be quiet after an execution's deadline: who asked for it would wait.
inline constexpr milliseconds kPeerQuiesceMax{600'000};

// In `ranges` local is the caller's side, as in the transfer that it was asked for.
struct PeerExecution {
  std::string id;                   // the caller's choice, once in a session
  std::vector<std::string> proofs;  // see peer.proto
  Operation operation = Operation::kRead;
  std::vector<BufferReference> callers;  // with generations, without a peer; likewise:
  std::vector<BufferReference> callees;  // all of one workload
  std::vector<TransferRange> ranges;
  uint32_t deadline_ms = 0;
  int priority = 0;
  std::vector<Path> require_path;  // empty: any

  bool operator==(const PeerExecution&) const = default;
};

// No byte of it moves any more, unless it is said to be pending.
struct PeerExecutionEnd {
  std::optional<Error> error;  // none: all bytes were moved
  uint64_t bytes = 0;          // moved for certain
  bool pending = false;
};

}  // namespace gantry::wire
