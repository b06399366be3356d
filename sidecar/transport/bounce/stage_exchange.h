// Asks a peer for staging memory of its own, and to copy between it and its GPUs. Owned here,
// implemented by the peer API; called by helper threads, may block up to the deadline. Thread-safe.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/stage_types.h"

namespace gantry::transport {

class StageExchange {
 public:
  virtual ~StageExchange() = default;
  // Up to so many slices, one at least. They end with the session. kResourceExhausted: the peer has
  // none to lend now.
  virtual Result<wire::StageGrant> Open(uint32_t slices, TimePoint deadline) = 0;
  // 0: whichever the session has.
  virtual Status Close(uint64_t stage, TimePoint deadline) = 0;
  // Succeeds when the bytes are where they belong. Fails as the peer refused it or failed to copy,
  // and then no byte of it moves any more (kResourceExhausted: it has not begun, for want of time;
  // kDeadlineExceeded: it did not end in its own time); but with kPeerLost the session is broken,
  // and bytes may still move there until its lease is over, which is as long as that of queue
  // pairs.
  virtual Status Copy(const wire::StagedMove& move, TimePoint deadline) = 0;
};

}  // namespace gantry::transport
