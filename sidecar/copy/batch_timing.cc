#include "sidecar/copy/batch_timing.h"

#include <algorithm>

namespace gantry::transport {
namespace {

constexpr double kNewShare = 0.25;
// Some take longer than the last ones did, which may have been shorter.
constexpr double kMargin = 1.25;
// What made batches late may be over; who asks for a transfer now and then is not to find that out
// each time. A quarter of a second of copies one after the other.
constexpr uint64_t kForgottenBehind = uint64_t{75} << 30;
constexpr milliseconds kForgottenAfter{10'000};

}  // namespace

void BatchTiming::Estimate::Add(double value, TimePoint now, uint64_t moved) {
  const double known = Get(now, moved);
  value_ = known == 0 ? value : known + kNewShare * (value - known);
  seen_ = now;
  moved_ = moved;
}

double BatchTiming::Estimate::Get(TimePoint now, uint64_t moved) const {
  return now - seen_ < kForgottenAfter && moved - moved_ < kForgottenBehind ? value_ : 0;
}

void BatchTiming::RowsDone(int worker, uint64_t bytes, nanoseconds taken, TimePoint now) {
  Worker& done = at(worker);
  done.rows_in_flight -= std::min(done.rows_in_flight, bytes);
  if (taken.count() <= 0) return;
  moved_ += bytes;
  done.rows_rate.Add(static_cast<double>(bytes) / static_cast<double>(taken.count()), now);
}

void BatchTiming::BatchDone(int worker, size_t ahead, nanoseconds taken, TimePoint now) {
  at(worker).batches_take[std::min(ahead, kAheadMax - 1)].Add(static_cast<double>(taken.count()),
                                                              now, moved_);
}

bool BatchTiming::ComesBackInTime(int worker, size_t ahead, std::span<const int> by_rows,
                                  uint64_t bytes_left, TimePoint now) const {
  double rate = 0;
  uint64_t bytes = bytes_left;
  for (const int one : by_rows) {
    rate += at(one).rows_rate.Get(now);
    bytes += at(one).rows_in_flight;
  }
  const double takes = at(worker).batches_take[std::min(ahead, kAheadMax - 1)].Get(now, moved_);
  return rate == 0 || kMargin * takes * rate <= static_cast<double>(bytes);
}

}  // namespace gantry::transport
