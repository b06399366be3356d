// The ceiling of a copy on this machine: memcpy of the same ranges by so many threads, with nothing
// around it. Stateless; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/bench_pattern.h"
#include "lib/base/result.h"

namespace gantry::bench {

struct CopyWork {
  const BlockPairs* pairs = nullptr;
  uint64_t block_bytes = 0;
  std::byte* local = nullptr;  // block 0 of each side
  std::byte* remote = nullptr;
  bool to_local = true;  // read
};

// Seconds from the moment all threads are ready until the last block is copied.
// kResourceExhausted: so many threads cannot be had.
Result<double> CopyWithThreads(const CopyWork& work, int threads);

}  // namespace gantry::bench
