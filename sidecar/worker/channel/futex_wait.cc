#include "sidecar/worker/channel/futex_wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace gantry::worker {

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, TimePoint deadline) {
  timespec limit = {};
  timespec* limit_or_null = nullptr;
  if (deadline != TimePoint::max()) {
    // steady_clock is CLOCK_MONOTONIC, on which FUTEX_WAIT_BITSET measures its absolute timeout.
    const int64_t since_boot = nanoseconds(deadline.time_since_epoch()).count();
    limit.tv_sec = since_boot / 1'000'000'000;
    limit.tv_nsec = since_boot % 1'000'000'000;
    limit_or_null = &limit;
  }
  ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, expected, limit_or_null, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

void FutexWake(std::atomic<uint32_t>& word, int threads) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, threads, nullptr, nullptr, 0);
}

}  // namespace gantry::worker
