#include "lib/base/poll_fd.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/bounded_spin.h"

namespace gantry {
namespace {

constexpr int kLongest = 1'000'000;
constexpr BoundedSpin kSoon{microseconds(100)};

}  // namespace

int MillisecondsUntil(TimePoint deadline) {
  if (deadline == TimePoint::max()) return kLongest;
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, kLongest));
}

bool AwaitInput(int fd, TimePoint deadline) {
  pollfd readable{fd, POLLIN, 0};
  do {
    const int ready = ::poll(&readable, 1, MillisecondsUntil(deadline));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // the reader sees what it is
  } while (Clock::now() < deadline);
  return false;
}

bool AwaitInputSoon(int fd, TimePoint deadline) {
  const auto is_readable = [fd] {
    pollfd readable{fd, POLLIN, 0};
    const int ready = ::poll(&readable, 1, 0);
    return ready > 0 || (ready < 0 && errno != EINTR);
  };
  return kSoon.Until(is_readable, deadline) || AwaitInput(fd, deadline);
}

}  // namespace gantry
