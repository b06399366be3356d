// Waits for one descriptor with poll(2). Thread-safe.
#pragma once

#include "lib/base/clock.h"

namespace gantry {

// Returns the time to `deadline` for poll(2), in milliseconds, rounded up: 0 when it is past, at
// most 1'000'000. For longer waits, call it again.
int MillisecondsUntil(TimePoint deadline);

// Waits for input or its end until the deadline; false at the deadline. Errors of poll also return
// true: the reader then sees them. Prefer this to a blocking recv(2) on a Unix stream socket. There
// unix_stream_data_wait wakes up for every event, also when the peer reads what was sent.
bool AwaitInput(int fd, TimePoint deadline);

// Does the same, but looks for 100 microseconds before it sleeps. For short answers, which often
// come sooner than a wake-up.
bool AwaitInputSoon(int fd, TimePoint deadline);

}  // namespace gantry
