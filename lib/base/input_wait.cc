#include "lib/base/input_wait.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "lib/base/poll_fd.h"

namespace gantry {
namespace {

bool HasInput(int fd) {
  pollfd readable{fd, POLLIN, 0};
  const int ready = ::poll(&readable, 1, 0);
  return ready > 0 || (ready < 0 && errno != EINTR);  // the reader sees what it is
}

// To the nanosecond, where poll(2) knows milliseconds.
bool SleepForInput(int fd, TimePoint until) {
  const nanoseconds left = until - Clock::now();
  if (left.count() <= 0) return false;
  const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
  pollfd readable{fd, POLLIN, 0};
  const int ready = ::ppoll(&readable, 1, &timeout, nullptr);
  return ready > 0 || (ready < 0 && errno != EINTR);
}

}  // namespace

bool InputWait::Await(int fd, TimePoint deadline) {
  const TimePoint start = Clock::now();
  bool arrived = soon_.Until([fd] { return HasInput(fd); }, deadline);
  if (!arrived) {
    arrived = AwaitExpected(fd, start, deadline) || AwaitInput(fd, deadline);
    soon_.Slept(Clock::now() - start);
  }
  if (arrived) expected_.Learn(Clock::now() - start);
  return arrived;
}

bool InputWait::AwaitExpected(int fd, TimePoint start, TimePoint deadline) {
  const ExpectedAnswer::Window window = expected_.window();
  if (window.until.count() == 0) return false;
  if (SleepForInput(fd, std::min(deadline, start + window.from))) return true;
  return expected_.spin().Until([fd] { return HasInput(fd); },
                                std::min(deadline, start + window.until));
}

}  // namespace gantry
