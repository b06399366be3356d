// Waiting for one descriptor by poll(2). Thread-safe.
#pragma once

#include "lib/base/clock.h"

namespace gantry {

// The rest of the time in milliseconds, rounded up, for poll(2): 0 when it is over, at most
// 1'000'000 (who waits longer asks again).
int MillisecondsUntil(TimePoint deadline);

// Until there is something to read (or the end of it), or the deadline. A reader of a Unix stream
// socket that blocks in recv(2) instead is woken in vain as soon as the other side takes what it
// sent: the kernel's unix_stream_data_wait listens to every event of the socket, poll(2) does not.
bool AwaitInput(int fd, TimePoint deadline);

}  // namespace gantry
