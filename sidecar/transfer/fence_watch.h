// Timeline fences: 64-bit counters in host memory that callers or their streams write, and the
// transfers that wait for them. Polled with growing intervals. Used by the driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/registry/buffer.h"

namespace gantry::engine {

// A counter that a transfer waits for. A use of the buffer, kept elsewhere, keeps the memory
// mapped.
struct TimelineCounter {
  const uint64_t* place = nullptr;
  uint64_t value = 0;  // the value to reach
  std::string name;    // buffer name and offset, for messages

  // Acquire: writes before the counter's write are visible after this read.
  uint64_t Read() const { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }
};

// Checks that the fence is within the buffer, in host memory and aligned. Maps it in this process.
Result<TimelineCounter> CounterOf(const wire::TimelineFence& fence,
                                  const registry::Buffer::Use& use);
// The error of a transfer that still waits at its deadline.
Error NotReached(const TimelineCounter& counter);

class FenceWatch {
 public:
  // `counter` must stay valid until Poll returns the token or Remove is called.
  void Add(uint64_t token, const TimelineCounter* counter, TimePoint now);
  void Remove(uint64_t token);
  // Removes reached counters and returns their tokens. Reads counters only when they are due.
  void Poll(TimePoint now, std::vector<uint64_t>* reached);
  // When to call Poll again; max: nothing waits.
  TimePoint next() const { return next_; }

 private:
  struct Waiting {
    uint64_t token = 0;
    const TimelineCounter* counter = nullptr;
    TimePoint since;
  };

  std::vector<Waiting> waiting_;  // oldest first
  TimePoint next_ = TimePoint::max();
};

}  // namespace gantry::engine
