#include "lib/base/expected_answer.h"

#include <algorithm>
#include <thread>

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

}  // namespace

ExpectedAnswer::ExpectedAnswer(Patience patience)
    : spin_(2 * kLeadMax),
      is_long_(patience == Patience::kLong ||
               (patience == Patience::kByProcessors && HasProcessorsForLong())) {}

ExpectedAnswer::Window ExpectedAnswer::WindowOf(nanoseconds last, nanoseconds before_last) {
  // The sooner of two, so that one slow answer does not have the next one slept through.
  const nanoseconds expected = std::min(last, before_last);
  if (expected.count() == 0 || expected > kExpectedMax) return {};
  const nanoseconds lead = std::clamp<nanoseconds>(expected / kLeadPart, kLeadMin, kLeadMax);
  return {std::max<nanoseconds>(expected - lead, nanoseconds(0)), expected + lead};
}

void ExpectedAnswer::Learn(nanoseconds taken) {
  before_last_ = last_;
  last_ = taken;
}

}  // namespace gantry
