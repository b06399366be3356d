// Timeline fences: 64-bit counters in host memory that callers or their streams write, and the
// transfers that wait for them. Polled, more and more seldom. Owned by the engine's driver.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/result.h"
#include "lib/wire/transfer_request.h"
#include "sidecar/registry/buffer.h"

namespace gantry::engine {

// A counter that a transfer waits for. The buffer's use, kept elsewhere, keeps the memory mapped.
struct TimelineCounter {
  const uint64_t* place = nullptr;
  uint64_t value = 0;  // to be reached
  std::string name;    // of the buffer and the offset in it

  // What was written before the counter was is seen after it was read here.
  uint64_t Read() const { return __atomic_load_n(place, __ATOMIC_ACQUIRE); }
};

// Checks that the fence is within the buffer, in host memory and aligned, and maps it here.
Result<TimelineCounter> CounterOf(const wire::TimelineFence& fence,
                                  const registry::Buffer::Use& use);
// Why a transfer that still waits ends at its deadline.
Error NotReached(const TimelineCounter& counter);

class FenceWatch {
 public:
  // `counter` stays where it is until the token comes back from Poll or is removed.
  void Add(uint64_t token, const TimelineCounter* counter, TimePoint now);
  void Remove(uint64_t token);
  // Takes out those that were reached; looks at them only when their time has come.
  void Poll(TimePoint now, std::vector<uint64_t>* reached);
  // When to call Poll again; max: nothing waits.
  TimePoint next() const { return next_; }

 private:
  struct Waiting {
    uint64_t token = 0;
    const TimelineCounter* counter = nullptr;
    TimePoint since;
  };

  std::vector<Waiting> waiting_;  // the oldest first
  TimePoint next_ = TimePoint::max();
};

}  // namespace gantry::engine
