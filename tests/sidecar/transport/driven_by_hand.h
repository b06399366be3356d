// Transports that tests drive themselves: a plan of one range, and polling until it is moved. Used
// by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sidecar/transport/transport.h"
#include "tests/fakes/test_waker.h"

namespace gantry::transport {

inline std::shared_ptr<MovePlan> PlanOf(wire::Operation operation,
                                        std::shared_ptr<const memory::MappedAllocation> local,
                                        RemoteAllocation remote, uint64_t local_offset,
                                        uint64_t remote_offset, uint64_t length) {
  auto plan = std::make_shared<MovePlan>();
  plan->operation = operation;
  plan->local = {std::move(local)};
  plan->remote = {std::move(remote)};
  MoveSegment segment;
  segment.local_offset = local_offset;
  segment.remote_offset = remote_offset;
  segment.length = length;
  plan->segments.push_back(segment);
  plan->bytes = length;
  return plan;
}

// False: it is not finished after `time`. `waker` is whom the transport wakes.
inline bool PollUntilFinished(Transport& transport, const Operation& operation,
                              gantry::testing::TestWaker& waker, milliseconds time) {
  const TimePoint limit = Clock::now() + time;
  std::vector<uint64_t> ready_tokens;
  while (!operation.finished() && Clock::now() < limit) {
    const PollOutcome polled = transport.Poll(&ready_tokens);
    if (!polled.progressed && !polled.should_spin) waker.Wait();
  }
  return operation.finished();
}

}  // namespace gantry::transport
