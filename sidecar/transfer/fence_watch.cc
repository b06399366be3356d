#include "sidecar/transfer/fence_watch.h"

#include <algorithm>
#include <bit>
#include <span>

#include "lib/base/byte_range.h"

namespace gantry::engine {
namespace {

static_assert(std::endian::native == std::endian::little, "counters have their lowest byte first");

constexpr uint64_t kCounterBytes = sizeof(uint64_t);
// A poll delays a transfer by this part of the time that it has waited, within these bounds.
constexpr int kDelayPart = 32;
constexpr nanoseconds kPeriodMin = microseconds(50);
constexpr nanoseconds kPeriodMax = microseconds(500);
// Looking at many counters takes this part of the thread's time at most.
constexpr int kScanPart = 20;

tl::unexpected<Error> Refuse(ErrorCode code, std::string message, std::string hint,
                             std::string field) {
  return Fail(code, std::move(message), std::move(hint), std::move(field));
}

}  // namespace

Result<TimelineCounter> CounterOf(const wire::TimelineFence& fence,
                                  const registry::Buffer::Use& use) {
  const registry::Buffer::Description& description = use.buffer().description();
  if (!Fits(fence.offset, kCounterBytes, description.pieces.length())) {
    return Refuse(ErrorCode::kOutOfRange,
                  "the counter at " + std::to_string(fence.offset) + " is not within buffer '" +
                      description.name + "' of " + std::to_string(description.pieces.length()) +
                      " bytes",
                  {}, "/fence/offset");
  }
  const memory::Extent extent = description.pieces.Locate(fence.offset, kCounterBytes);
  if (extent.length != kCounterBytes || extent.offset % kCounterBytes != 0) {
    return Refuse(ErrorCode::kInvalidArgument,
                  "the counter at " + std::to_string(fence.offset) + " of buffer '" +
                      description.name + "' is not aligned to 8 bytes in its memory",
                  "a counter of 8 bytes is written as a whole only where it is aligned",
                  "/fence/offset");
  }
  auto bytes = use.allocations()[extent.allocation]->in_process().Bytes();
  if (!bytes) return Fail(std::move(bytes).error().WithField("/fence/buffer"));
  TimelineCounter counter;
  counter.place = reinterpret_cast<const uint64_t*>(bytes->data() + extent.offset);
  counter.value = fence.value;
  counter.name = description.name + " at " + std::to_string(fence.offset);
  return counter;
}

Error NotReached(const TimelineCounter& counter) {
  return {ErrorCode::kDeadlineExceeded,
          "the fence was not reached by the deadline: the counter in buffer " + counter.name +
              " is " + std::to_string(counter.Read()) + ", not " + std::to_string(counter.value),
          "nothing was moved; deadline_ms includes the wait for the fence"};
}

void FenceWatch::Add(uint64_t token, const TimelineCounter* counter, TimePoint now) {
  waiting_.push_back({token, counter, now});
  next_ = now;
}

void FenceWatch::Remove(uint64_t token) {
  std::erase_if(waiting_, [&](const Waiting& each) { return each.token == token; });
  if (waiting_.empty()) next_ = TimePoint::max();
}

void FenceWatch::Poll(TimePoint now, std::vector<uint64_t>* reached) {
  if (now < next_) return;
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (each.counter->Read() < each.counter->value) return false;
    reached->push_back(each.token);
    return true;
  });
  if (waiting_.empty()) {
    next_ = TimePoint::max();
    return;
  }
  const TimePoint end = Clock::now();
  const nanoseconds waited = end - waiting_.back().since;
  next_ = end + std::max(std::clamp<nanoseconds>(waited / kDelayPart, kPeriodMin, kPeriodMax),
                         kScanPart * nanoseconds(end - now));
}

}  // namespace gantry::engine
