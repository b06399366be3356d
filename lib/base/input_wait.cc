#include "lib/base/input_wait.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "lib/base/poll_fd.h"

namespace gantry {
namespace {

// What answers, and this thread besides, have a processor each.
constexpr unsigned kProcessorsForLong = 8;
// An answer that takes longer is not worth a processor's time around its end.
constexpr milliseconds kExpectedMax{50};
// So long before it is expected a sleep has to end: a wake-up, and what the answers differ by.
constexpr microseconds kLeadMin{300};
constexpr microseconds kLeadMax{1'000};
constexpr int kLeadPart = 8;  // of the time that is expected

// Asked once: the C library opens and reads a file for it, which takes 14 to 40 microseconds.
bool HasProcessorsForLong() {
  static const bool has = std::thread::hardware_concurrency() >= kProcessorsForLong;
  return has;
}

bool IsReadable(int fd) {
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

InputWait::InputWait(Patience patience)
    : around_(2 * kLeadMax),
      is_long_(patience == Patience::kLong ||
               (patience == Patience::kByProcessors && HasProcessorsForLong())) {}

bool InputWait::Await(int fd, TimePoint deadline) {
  const TimePoint start = Clock::now();
  bool arrived = soon_.Until([fd] { return IsReadable(fd); }, deadline);
  if (!arrived) {
    arrived = AwaitExpected(fd, start, deadline) || AwaitInput(fd, deadline);
    soon_.Slept(Clock::now() - start);
  }
  if (arrived) Learn(Clock::now() - start);
  return arrived;
}

InputWait::Window InputWait::WindowOf(nanoseconds last, nanoseconds before_last) {
  // The sooner of two, so that one slow answer does not have the next one slept through.
  const nanoseconds expected = std::min(last, before_last);
  if (expected.count() == 0 || expected > kExpectedMax) return {};
  const nanoseconds lead = std::clamp<nanoseconds>(expected / kLeadPart, kLeadMin, kLeadMax);
  return {std::max<nanoseconds>(expected - lead, nanoseconds(0)), expected + lead};
}

bool InputWait::AwaitExpected(int fd, TimePoint start, TimePoint deadline) {
  const Window window = WindowOf(last_, before_last_);
  if (!is_long_ || window.until.count() == 0) return false;
  if (SleepForInput(fd, std::min(deadline, start + window.from))) return true;
  return around_.Until([fd] { return IsReadable(fd); }, std::min(deadline, start + window.until));
}

void InputWait::Learn(nanoseconds taken) {
  before_last_ = last_;
  last_ = taken;
}

}  // namespace gantry
