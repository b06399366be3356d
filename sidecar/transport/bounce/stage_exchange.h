// Asks a peer to lend staging memory, and to copy between it and its GPUs. This folder owns the
// interface; the peer API implements it. Called on helper threads; may block until the deadline.
// Thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/stage_types.h"

namespace gantry::transport {

class StageExchange {
 public:
  virtual ~StageExchange() = default;
  // Borrows up to `slices` slices, at least one, until the session ends. kResourceExhausted: the
  // peer has none now.
  virtual Result<wire::StageGrant> Open(uint32_t slices, TimePoint deadline) = 0;
  // `stage` 0: whichever the session has.
  virtual Status Close(uint64_t stage, TimePoint deadline) = 0;
  // Succeeds when the bytes are in place. After a failure no byte moves any more, except with
  // kPeerLost. kResourceExhausted: the peer had no time and has not begun. kDeadlineExceeded: the
  // copy did not finish in the peer's time. kPeerLost: the session is broken. Bytes may move until
  // its lease expires, which is as long as that of queue pairs.
  virtual Status Copy(const wire::StagedMove& move, TimePoint deadline) = 0;
};

}  // namespace gantry::transport
