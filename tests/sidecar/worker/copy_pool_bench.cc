// Latency of small jobs and throughput of random segments through the copy workers, beside plain
// memcpy by as many threads over the same ranges. Prints one line per measurement.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "sidecar/worker/pool/worker_pool.h"
#include "sidecar/worker/process/copy_worker.h"
#include "tests/fakes/test_arena.h"
#include "tests/sidecar/worker/lone_driver.h"

namespace gantry::worker {
namespace {

using ::gantry::testing::TestArena;

constexpr uint64_t kBytes = uint64_t{1} << 30;
constexpr int kWorkers = 2;
constexpr size_t kSegmentsPerJob = 16;
constexpr size_t kJobsInFlight = 8;  // per worker
constexpr int kRounds = 5;

struct Mapped {
  TestArena memory{kBytes};
  memory::MappingId id;
};

void MeasureLatency(WorkerPool& pool, const Mapped& from, const Mapped& to, milliseconds gap,
                    int count) {
  std::vector<double> microseconds_each;
  const CopySegment segment = {from.id, to.id, 0, 0, 4096, 0, 0, 1};
  for (int i = 0; i < count; ++i) {
    if (gap.count() > 0) {
      // The engine's thread sleeps in Wait between transfers, and is woken for the next one.
      const TimePoint end = Clock::now() + gap;
      while (Clock::now() < end) WaitAlone(pool, end);
    }
    const TimePoint start = Clock::now();
    pool.Post(0, static_cast<uint64_t>(i), {&segment, 1});
    Completion completion;
    while (pool.Poll({&completion, 1}) == 0) WaitAlone(pool, start + std::chrono::seconds(5));
    microseconds_each.push_back(SecondsBetween(start, Clock::now()) * 1e6);
  }
  std::ranges::sort(microseconds_each);
  const auto at = [&](double quantile) {
    return microseconds_each[static_cast<size_t>(quantile * (count - 1))];
  };
  std::printf("4 KiB job, gap %3d ms: p50 %.1f us, p90 %.1f us, p99 %.1f us\n",
              static_cast<int>(gap.count()), at(0.5), at(0.9), at(0.99));
}

std::vector<CopySegment> RandomSegments(const Mapped& from, const Mapped& to, uint64_t bytes) {
  std::vector<uint64_t> source(kBytes / bytes);
  std::iota(source.begin(), source.end(), 0);
  std::vector<uint64_t> destination = source;
  std::mt19937_64 random(1);
  std::ranges::shuffle(source, random);
  std::ranges::shuffle(destination, random);
  std::vector<CopySegment> segments;
  for (size_t i = 0; i < source.size(); ++i) {
    segments.push_back({from.id, to.id, source[i] * bytes, destination[i] * bytes, bytes, 0, 0, 1});
  }
  return segments;
}

double PoolSeconds(WorkerPool& pool, const std::vector<CopySegment>& segments) {
  const TimePoint start = Clock::now();
  std::vector<size_t> in_flight(kWorkers);
  std::vector<Completion> completions(64);
  size_t next = 0;
  size_t left = 0;
  while (next < segments.size() || left > 0) {
    for (int worker = 0; worker < kWorkers; ++worker) {
      size_t& jobs = in_flight[static_cast<size_t>(worker)];
      while (next < segments.size() && jobs < kJobsInFlight) {
        const size_t count = std::min(kSegmentsPerJob, segments.size() - next);
        if (!pool.Post(worker, next, std::span(segments).subspan(next, count))) break;
        next += count;
        ++jobs;
        ++left;
      }
    }
    const size_t taken = pool.Poll(completions);
    for (size_t i = 0; i < taken; ++i) --in_flight[static_cast<size_t>(completions[i].worker)];
    left -= taken;
    if (taken == 0) WaitAlone(pool, Clock::now() + std::chrono::seconds(5));
  }
  return SecondsBetween(start, Clock::now());
}

double MemcpySeconds(const Mapped& from, const Mapped& to,
                     const std::vector<CopySegment>& segments) {
  const TimePoint start = Clock::now();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kWorkers; ++t) {
    threads.emplace_back([&, t] {
      const size_t share = segments.size() / kWorkers;
      for (size_t i = t * share; i < (t + 1) * share; ++i) {
        std::memcpy(to.memory.data() + segments[i].destination_offset,
                    from.memory.data() + segments[i].source_offset, segments[i].length);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return SecondsBetween(start, Clock::now());
}

void MeasureThroughput(WorkerPool& pool, const Mapped& from, const Mapped& to, uint64_t bytes) {
  const std::vector<CopySegment> segments = RandomSegments(from, to, bytes);
  std::vector<double> pool_rates;
  std::vector<double> memcpy_rates;
  for (int round = 0; round < kRounds; ++round) {
    memcpy_rates.push_back(kBytes / MemcpySeconds(from, to, segments) / 1e9);
    pool_rates.push_back(kBytes / PoolSeconds(pool, segments) / 1e9);
  }
  std::ranges::sort(pool_rates);
  std::ranges::sort(memcpy_rates);
  const double pool_rate = pool_rates[kRounds / 2];
  const double memcpy_rate = memcpy_rates[kRounds / 2];
  std::printf(
      "random %2d KiB segments, %d workers: %.2f GB/s; memcpy by %d threads: %.2f GB/s; %.2f\n",
      static_cast<int>(bytes >> 10), kWorkers, pool_rate, kWorkers, memcpy_rate,
      pool_rate / memcpy_rate);
}

int Main() {
  WorkerPoolOptions options;
  options.workers = kWorkers;
  options.log_level = "warning";
  auto pool = WorkerPool::Create(options);
  if (!pool) return 1;
  Mapped from;
  Mapped to;
  from.id = (*pool)->Map(from.memory.source()).value();
  to.id = (*pool)->Map(to.memory.source()).value();
  MeasureLatency(**pool, from, to, milliseconds(0), 20'000);
  MeasureLatency(**pool, from, to, milliseconds(20), 200);
  for (const uint64_t bytes : {uint64_t{64} << 10, uint64_t{16} << 10, uint64_t{4} << 10}) {
    MeasureThroughput(**pool, from, to, bytes);
  }
  return 0;
}

}  // namespace
}  // namespace gantry::worker

int main(int argc, char** argv) {
  if (gantry::worker::IsCopyWorker(argc, argv)) return gantry::worker::RunCopyWorker(argc, argv);
  return gantry::worker::Main();
}
