// From the segments of a plan to work requests: what each one costs before it is posted.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "sidecar/transport/rdma/work_cutter.h"
#include "tests/benchmarks/single_blocks.h"

namespace gantry::transport {
namespace {

constexpr uint64_t kBlockBytes = 64 * 1024;
constexpr uint32_t kBlocks = 100'000;

// One buffer a side in chunks of so many bytes.
class EvenChunks : public Stretches {
 public:
  explicit EvenChunks(uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  LocalStretch Local(uint32_t, uint64_t offset) const override {
    return {(uint64_t{1} << 46) + offset, static_cast<uint32_t>(offset / chunk_bytes_),
            chunk_bytes_ - offset % chunk_bytes_};
  }
  RemoteStretch Remote(uint32_t, uint64_t offset) const override {
    return {(uint64_t{3} << 45) + offset, static_cast<uint32_t>(offset / chunk_bytes_),
            chunk_bytes_ - offset % chunk_bytes_};
  }

 private:
  const uint64_t chunk_bytes_;
};

enum Form : int64_t { kRuns, kSegments };  // as plans of block ids and of ranges have them

MovePlan PlanOf(int64_t order, int64_t form) {
  const BlockPair pair = BlocksOfBytes(kBlockBytes);
  const auto runs = SingleBlocks(static_cast<BlockOrder>(order), kBlocks, 2 * kBlocks);
  MovePlan plan;
  if (form == kRuns) {
    plan.segments.AddRuns({pair}, runs);
  } else {
    for (const BlockRun& run : runs) plan.segments.push_back(SegmentList::SegmentOf(pair, run));
  }
  return plan;
}

// A chunk of the last argument's MiB; messages of up to 1 MiB.
void CutBlocks(benchmark::State& state) {
  const MovePlan plan = PlanOf(state.range(0), state.range(1));
  const EvenChunks stretches(static_cast<uint64_t>(state.range(2)) << 20);
  uint64_t requests = 0;
  for (auto _ : state) {
    WorkCutter cutter(plan, stretches, 1 << 20);
    WorkRequest request;
    for (;;) {
      const auto more = cutter.Next(&request);
      if (!more) abort();
      if (!*more) break;
      benchmark::DoNotOptimize(request);
      ++requests;
    }
  }
  const auto inverted = benchmark::Counter::kIsRate | benchmark::Counter::kInvert;
  state.counters["per_request"] = benchmark::Counter(static_cast<double>(requests), inverted);
  state.counters["per_block"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kBlocks), inverted);
}
BENCHMARK(CutBlocks)
    ->ArgNames({"contiguous", "segments", "chunk_MiB"})
    ->ArgsProduct({{kRandom, kContiguous}, {kRuns, kSegments}, {64, 2048}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gantry::transport
