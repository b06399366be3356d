// Takes what a worker's loop has completed, at the pool's end of its ring. One thread.
#pragma once

#include <gtest/gtest.h>

#include <thread>

#include "lib/base/clock.h"
#include "sidecar/worker/channel/worker_ring.h"

namespace gantry::worker {

// The next completion; a failure of the test, and not ok, when there is none within 20 s.
inline Completion AwaitCompletion(PoolRingEnd* pool) {
  Completion completion;
  const TimePoint limit = Clock::now() + std::chrono::seconds(20);
  while (pool->TakeCompletion(&completion) != RingTake::kEntry) {
    if (Clock::now() >= limit) {
      ADD_FAILURE() << "nothing was completed in 20 s";
      completion.ok = false;
      return completion;
    }
    std::this_thread::yield();
  }
  return completion;
}

}  // namespace gantry::worker
