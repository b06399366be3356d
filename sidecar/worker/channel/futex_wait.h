// Futex wait and wake on a word that processes share. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "lib/base/clock.h"

namespace gantry::worker {

// Sleeps while `word` equals `expected`, until a wake, a signal or the deadline; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, TimePoint deadline);
void FutexWake(std::atomic<uint32_t>& word, int threads);

}  // namespace gantry::worker
