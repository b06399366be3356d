#include "bench/bench_ceiling.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/thread.h"

namespace gantry::bench {
namespace {

constexpr uint64_t kBytesPerStep = 1 << 20;  // what a thread takes at once

void CopyBlocks(const CopyWork& work, size_t first, size_t last) {
  for (size_t i = first; i < last; ++i) {
    std::byte* local = work.local + work.pairs->local[i] * work.block_bytes;
    std::byte* remote = work.remote + work.pairs->remote[i] * work.block_bytes;
    std::memcpy(work.to_local ? local : remote, work.to_local ? remote : local, work.block_bytes);
  }
}

}  // namespace

Result<double> CopyWithThreads(const CopyWork& work, int threads) {
  const size_t blocks = work.pairs->local.size();
  const size_t step = std::max<size_t>(1, kBytesPerStep / work.block_bytes);
  if (blocks <= step || threads == 1) {  // to wake a thread would take longer than to copy
    const TimePoint start = Clock::now();
    CopyBlocks(work, 0, blocks);
    return SecondsBetween(start, Clock::now());
  }
  std::atomic<size_t> next{0};
  std::barrier<> line(threads + 1);
  std::vector<std::jthread> team;
  Status complete;
  for (int i = 0; i < threads; ++i) {
    auto thread = StartThread("gantry-ceiling", [&] {
      line.arrive_and_wait();
      for (size_t first = next.fetch_add(step); first < blocks; first = next.fetch_add(step)) {
        CopyBlocks(work, first, std::min(first + step, blocks));
      }
      line.arrive_and_wait();
    });
    if (thread) {
      team.push_back(*std::move(thread));
    } else {
      next = blocks;  // the others do nothing
      line.arrive_and_drop();
      complete = Fail(std::move(thread).error());
    }
  }
  std::this_thread::sleep_for(milliseconds(1));  // they stand at the line
  const TimePoint start = Clock::now();
  line.arrive_and_wait();
  line.arrive_and_wait();
  RETURN_IF_ERROR(complete);
  return SecondsBetween(start, Clock::now());
}

}  // namespace gantry::bench
