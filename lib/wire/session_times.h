// The times that two sidecars rely on from each other, and what follows from them: how long memory
// may still be moved after a loss. docs/operations.md states the sums. The other sidecar may be of
// another version, so a change of one of these is a change of the peer protocol.
#pragma once

#include "lib/base/clock.h"

namespace gantry::wire {

// A session over which nothing was heard for so long has ended, for both sides.
inline constexpr milliseconds kHeartbeat{1'000};
inline constexpr milliseconds kSilenceMax = 5 * kHeartbeat;

// Default of --quiesce-ms-max: a transfer that is stopped moves bytes no longer than this.
inline constexpr milliseconds kQuiesceMax{2'000};

// TCP: a target applies a part of a write for the lease, by its own clock. The margin covers how
// differently two clocks run, and what the target has begun.
inline constexpr milliseconds kPartLease{3'000};
inline constexpr milliseconds kPartLeaseMargin{250};
inline constexpr milliseconds kTcpWriteQuiet = kPartLease + kPartLeaseMargin;

// RDMA: the owner keeps its ends of queue pairs for so long after the session of their initiator
// ended. Both sides have noticed the end by then.
inline constexpr milliseconds kQueuePairLease = kSilenceMax + kHeartbeat;

// Bounce: a copy at the peer that takes longer is ended by force, which takes a moment. One may
// begin until the peer notices the end of the session.
inline constexpr milliseconds kStageCopyMax{2'000};
inline constexpr milliseconds kStageCopyForce{500};
inline constexpr milliseconds kBounceWriteQuiet = kQueuePairLease + kStageCopyMax + kStageCopyForce;

// Execution by a peer: the peer answers an end after so long that its transfer is not quiet yet.
// It is asked for a second longer than that. Then its sessions are ended.
inline constexpr milliseconds kExecutionEndMax{5'000};
inline constexpr milliseconds kExecutionEndCall = kExecutionEndMax + milliseconds(1'000);
inline constexpr milliseconds kSessionsEndMax{1'000};
inline constexpr milliseconds kExecutionMargin{1'000};

static_assert(kPartLease < kSilenceMax, "a part is applied no longer than its session lives");
static_assert(kStageCopyMax <= kQuiesceMax, "a copy at a peer is no longer than a stop");
// The sums that docs/operations.md states.
static_assert(kTcpWriteQuiet == milliseconds(3'250));
static_assert(kBounceWriteQuiet == milliseconds(8'500));
static_assert(kExecutionEndCall + kSessionsEndMax == milliseconds(7'000));
static_assert(kSilenceMax + kQuiesceMax + kExecutionMargin == milliseconds(8'000));
static_assert(kExecutionEndMax + kExecutionEndCall + kSessionsEndMax == milliseconds(12'000));

}  // namespace gantry::wire
