// From lists of block ids to a plan, and from the body of a request to both; then the places of the
// plan's blocks into a job and into a worker's ring.
#include <absl/container/inlined_vector.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "lib/codec/body_writer.h"
#include "lib/wire/transfers_body.h"
#include "sidecar/copy/job_builder.h"
#include "sidecar/plan/plan_builder.h"
#include "sidecar/transfer/transfer_fingerprint.h"
#include "sidecar/worker/channel/worker_ring.h"
#include "tests/fakes/fake_copy_pool.h"
#include "tests/fakes/test_arena.h"

namespace gantry::engine {
namespace {

constexpr uint64_t kBlockBytes = 16 * 1024;
constexpr uint64_t kFarBuffer = uint64_t{1} << 50;
constexpr PlanLimits kLimits = {1 << 20, 1 << 20, 1 << 20};

// As the sidecar does: page faults would cost more than what is measured.
const bool kLargeBlocksKept =
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20) != 0 && ::mallopt(M_TRIM_THRESHOLD, 64 << 20) != 0;

enum Order : int64_t { kRandom, kSortedHere, kContiguous, kSparse, kWrites };

// So many pairs of ids; half of the buffers' blocks, or one in 64 where they are sparse.
struct Case {
  Case(int64_t order, uint64_t count, uint64_t seed = 7) {
    const uint64_t blocks_per_id = order == kContiguous ? 1 : order == kSparse ? 64 : 2;
    blocks = count * blocks_per_id;
    std::mt19937_64 random(seed);
    for (auto* ids : {&request.local_blocks, &request.remote_blocks}) {
      ids->resize(count);
      for (uint64_t i = 0; i < count; ++i) {
        (*ids)[i] = i * blocks_per_id + random() % blocks_per_id;
      }
      if (order != kContiguous) std::shuffle(ids->begin(), ids->end(), random);
    }
    if (order == kSortedHere) std::sort(request.local_blocks.begin(), request.local_blocks.end());
    request.operation = order == kWrites ? wire::Operation::kWrite : wire::Operation::kRead;
    request.by_blocks = true;
    const uint64_t length = blocks * kBlockBytes;
    pieces = std::make_unique<memory::PieceMap>(
        *memory::PieceMap::Create({{0, 0, length}}, std::vector<uint64_t>{length}));
  }

  // Both buffers over pieces of this length, with no block across a seam.
  void CutIntoPieces(uint64_t piece_bytes) {
    std::vector<wire::Piece> list;
    for (uint64_t left = blocks * kBlockBytes; left > 0; left -= list.back().length) {
      list.push_back({static_cast<uint32_t>(list.size()), 0, std::min(left, piece_bytes)});
    }
    pieces = std::make_unique<memory::PieceMap>(
        *memory::PieceMap::Create(list, std::vector<uint64_t>(list.size(), piece_bytes)));
  }

  PlanInput Input() const {
    PlanInput input;
    input.request = &request;
    const wire::BlockLayout layout = {kBlockBytes, kBlockBytes, blocks};
    absl::InlinedVector<uint32_t, 2> allocations(pieces->pieces().size());
    std::iota(allocations.begin(), allocations.end(), 0);
    input.local.push_back({"kv", nullptr, pieces.get(), layout, allocations});
    input.remote.push_back({"kv", nullptr, pieces.get(), layout, allocations});
    input.of_whole_buffers = true;  // nothing is mapped here that could be compared
    return input;
  }
  std::string Body(wire::BodyFormat format) const {
    wire::BodyWriter writer(format);
    writer.BeginObject().Field("workload", "decode-0").Field("op", "read");
    writer.Key("local").BeginList().Text("kv.0").EndList();
    writer.Key("remote").BeginList().Text("prefill-7/engine/kv.0").EndList();
    for (const auto& [name, ids] : {std::pair{"local_blocks", &request.local_blocks},
                                    std::pair{"remote_blocks", &request.remote_blocks}}) {
      writer.Key(name).BeginList();
      for (const uint64_t id : *ids) writer.Unsigned(id);
      writer.EndList();
    }
    return writer.EndObject().Take();
  }

  uint64_t blocks = 0;
  wire::TransferRequest request;
  std::unique_ptr<memory::PieceMap> pieces;
};

BuiltPlan Plan(const PlanInput& input) {
  SegmentBudget budget(1 << 20);
  SegmentReservation reservation(budget);
  auto built = BuildPlan(input, kLimits, &reservation);
  if (!built) abort();
  return *std::move(built);
}

void CountPairs(benchmark::State& state, int64_t pairs) {
  state.counters["per_pair"] =
      benchmark::Counter(static_cast<double>(state.iterations() * pairs),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void PlanBlocks(benchmark::State& state) {
  // Several in turn: of a single list the processor learns by heart which of its ids are
  // neighbours.
  std::vector<PlanInput> inputs;
  std::vector<std::unique_ptr<Case>> cases;
  const auto count = static_cast<uint64_t>(state.range(1));
  for (uint64_t seed = 0; seed < std::clamp<uint64_t>((1 << 18) / count, 1, 16); ++seed) {
    cases.push_back(std::make_unique<Case>(state.range(0), count, seed));
    inputs.push_back(cases.back()->Input());
  }
  size_t next = 0;
  for (auto _ : state) benchmark::DoNotOptimize(Plan(inputs[next++ % inputs.size()]));
  CountPairs(state, state.range(1));
}

// Over pieces of virtual memory of so many MiB: every block is cut and looked up.
void PlanBlocksOverPieces(benchmark::State& state) {
  Case ids(kRandom, static_cast<uint64_t>(state.range(1)));
  ids.CutIntoPieces(static_cast<uint64_t>(state.range(0)) << 20);
  const PlanInput input = ids.Input();
  for (auto _ : state) benchmark::DoNotOptimize(Plan(input));
  CountPairs(state, state.range(1));
}

void BodyToPlan(benchmark::State& state) {
  const Case ids(kRandom, static_cast<uint64_t>(state.range(1)));
  const auto format = state.range(0) == 0 ? wire::BodyFormat::kJson : wire::BodyFormat::kCbor;
  const std::string body = ids.Body(format);
  for (auto _ : state) {
    auto read = wire::ReadTransferBody(format, body);
    if (!read) abort();
    PlanInput input = ids.Input();
    input.request = &read->requests.front();
    benchmark::DoNotOptimize(Plan(input));
  }
  CountPairs(state, state.range(1));
}

void Fingerprint(benchmark::State& state) {
  const Case ids(kRandom, static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(FingerprintOf(ids.request));
  CountPairs(state, state.range(0));
}

// What of a transfer's blocks goes into jobs: so many listed blocks in each.
class ListedBlocks {
 public:
  explicit ListedBlocks(size_t count) : runs_(count) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    source.writable = true;
    plan_.local.push_back(*memory::MappedAllocation::Create(pool_, source));
    plan_.remote.push_back({plan_.local.front()});
    pair_.unit_bytes = pair_.local_stride = pair_.remote_stride = kBlockBytes;
    std::mt19937 random(7);
    for (transport::BlockRun& run : runs_) {
      run = {static_cast<uint32_t>(random() % 65536), static_cast<uint32_t>(random() % 65536), 1,
             0};
    }
  }
  void Build(transport::JobBuilder* builder) const {
    builder->Begin(plan_, worker::GpuMeans::kKernel, /*listed=*/true, runs_.size());
    builder->AddBlocks(pair_, runs_);
  }

 private:
  testing::TestArena arena_{4096};
  worker::FakeCopyPool pool_;
  transport::MovePlan plan_;
  transport::BlockPair pair_;
  std::vector<transport::BlockRun> runs_;
};

// A plan whose every block is between another pair of pieces.
class BlocksOfPieces {
 public:
  explicit BlocksOfPieces(size_t count) {
    memory::AllocationSource source;
    source.fd = std::make_shared<UniqueFd>(arena_.Fd());
    source.size = arena_.size();
    source.writable = true;
    for (uint32_t piece = 0; piece < kPieces; ++piece) {
      plan_.local.push_back(*memory::MappedAllocation::Create(pool_, source));
      plan_.remote.push_back({plan_.local.back()});
    }
    std::mt19937 random(7);
    for (uint32_t i = 0; i < count; ++i) {
      transport::MoveSegment segment;
      segment.local_allocation = static_cast<uint32_t>(i * kPieces / count);
      segment.remote_allocation = static_cast<uint32_t>(random() % kPieces);
      segment.length = kBlockBytes;
      plan_.segments.push_back(segment);
    }
  }
  void Build(transport::JobBuilder* builder) const {
    builder->Begin(plan_, worker::GpuMeans::kKernel, /*listed=*/true, plan_.segments.size());
    for (const transport::MoveSegment& segment : plan_.segments) builder->Add(segment);
  }

 private:
  static constexpr uint32_t kPieces = 512;
  testing::TestArena arena_{4096};
  worker::FakeCopyPool pool_;
  transport::MovePlan plan_;
};

void PiecesToJobAndRing(benchmark::State& state) {
  const BlocksOfPieces blocks(static_cast<size_t>(state.range(0)));
  transport::JobBuilder builder;
  const auto layout = std::make_unique<worker::RingLayout>();
  worker::PoolRingEnd ring(worker::InitializeRing(layout.get()));
  for (auto _ : state) {
    blocks.Build(&builder);
    if (!ring.Submit(1, builder.job())) abort();
    layout->submission_tail.value = layout->submission_head.value.load();
    layout->place_tail.value = layout->place_head.value.load();
  }
  state.counters["segments"] = static_cast<double>(builder.job().size());
  CountPairs(state, state.range(0));
}

void BlocksToJob(benchmark::State& state) {
  const ListedBlocks blocks(static_cast<size_t>(state.range(0)));
  transport::JobBuilder builder;
  for (auto _ : state) {
    blocks.Build(&builder);
    benchmark::DoNotOptimize(builder.job().data());
  }
  CountPairs(state, state.range(0));
}

void JobToRing(benchmark::State& state) {
  const ListedBlocks blocks(static_cast<size_t>(state.range(0)));
  transport::JobBuilder builder;
  blocks.Build(&builder);
  const auto layout = std::make_unique<worker::RingLayout>();
  worker::PoolRingEnd ring(worker::InitializeRing(layout.get()));
  for (auto _ : state) {
    if (!ring.Submit(1, builder.job())) abort();
    // As a worker that has taken everything leaves it.
    layout->submission_tail.value = layout->submission_head.value.load();
    layout->place_tail.value = layout->place_head.value.load();
  }
  CountPairs(state, state.range(0));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t count : {512, 4096, 65536}) benchmark->Arg(count);
}

BENCHMARK(PlanBlocks)
    ->ArgsProduct({{kRandom, kSortedHere, kContiguous, kSparse, kWrites},
                   {512, 16384, 65536, 262144}});
BENCHMARK(PlanBlocksOverPieces)->ArgsProduct({{2, 20}, {16384}});
BENCHMARK(BodyToPlan)->ArgsProduct({{0, 1}, {512, 65536}});
BENCHMARK(Fingerprint)->Apply(Sizes);
BENCHMARK(BlocksToJob)->Apply(Sizes);
BENCHMARK(PiecesToJobAndRing)->Arg(512)->Arg(4096);
BENCHMARK(JobToRing)->Apply(Sizes);

}  // namespace
}  // namespace gantry::engine
