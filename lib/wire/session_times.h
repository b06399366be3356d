// The times that two sidecars rely on from each other, and the sums that follow from their
// defaults: how long memory may usually be moved after a loss. docs/operations.md states the sums.
// The other sidecar may be of another version, so a change here is a change of the peer protocol.
#pragma once

#include "lib/base/clock.h"

namespace gantry::wire {

// A side takes its peer for lost after so long a silence. An initiator waits for three heartbeats
// of what its peer states, where that is longer.
inline constexpr milliseconds kHeartbeat{1'000};
inline constexpr milliseconds kSilenceMax{5'000};
static_assert(3 * kHeartbeat <= kSilenceMax);
// How often an initiator looks for that.
inline constexpr milliseconds kSilenceLook{1'000};

// Default of --quiesce-ms-max: a transfer that is stopped moves bytes no longer than this.
inline constexpr milliseconds kQuiesceMax{2'000};

// TCP: a target applies a part of a write for the lease, by its own clock. The margin covers how
// differently two clocks run, and what the target has begun.
inline constexpr milliseconds kPartLease{3'000};
inline constexpr milliseconds kPartLeaseMargin{250};

// RDMA: the owner keeps its ends of queue pairs for so long after the session of their initiator
// ended, so that the initiator notices first.
inline constexpr milliseconds kQueuePairLease = kSilenceMax + kSilenceLook;

// Bounce: a copy at the peer that takes longer is ended by force, which takes a moment more.
inline constexpr milliseconds kStageCopyMax{2'000};
inline constexpr milliseconds kStageCopyEnd = kStageCopyMax + milliseconds(500);

// Execution by a peer: the peer answers an end after so long that its transfer is not quiet yet.
// It is asked for a second longer than that.
inline constexpr milliseconds kExecutionEndMax{5'000};
inline constexpr milliseconds kExecutionEndCall = kExecutionEndMax + milliseconds(1'000);
// On top of what the peer says that it needs to become quiet.
inline constexpr milliseconds kExecutionMargin{1'000};

// The sums that docs/operations.md states.
static_assert(kPartLease + kPartLeaseMargin == milliseconds(3'250));
static_assert(kQueuePairLease + kStageCopyEnd == milliseconds(8'500));
static_assert(kSilenceMax + kQuiesceMax + kExecutionMargin == milliseconds(8'000));
static_assert(kExecutionEndMax + kExecutionEndCall ==
              milliseconds(11'000));  // and the sessions' end

}  // namespace gantry::wire
