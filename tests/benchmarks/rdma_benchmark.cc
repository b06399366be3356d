// What the rdma transport costs beside its devices: a work request on its whole way, and, where
// there are devices, their registration of a buffer in more and more chunks.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "sidecar/transport/rdma/verbs/system_verbs.h"
#include "tests/benchmarks/instant_verbs.h"
#include "tests/benchmarks/single_blocks.h"
#include "tests/sidecar/transport/rdma/rdma_world.h"

namespace gantry::transport {
namespace {

using gantry::testing::TestArena;

constexpr uint32_t kBlockBytes = 16 * 1024;
constexpr uint32_t kBlocks = 20'000;
constexpr uint64_t kPage = 4096;

std::shared_ptr<MovePlan> BlocksOf(BlockOrder order, wire::Operation operation,
                                   std::shared_ptr<const memory::MappedAllocation> local,
                                   RemoteAllocation remote) {
  auto plan = std::make_shared<MovePlan>();
  plan->operation = operation;
  plan->local = {std::move(local)};
  plan->remote = {std::move(remote)};
  plan->segments.AddRuns({BlocksOfBytes(kBlockBytes)}, SingleBlocks(order, kBlocks, kBlocks));
  plan->bytes = uint64_t{kBlocks} * kBlockBytes;
  return plan;
}

// Not inlined, so that callgrind can count in it alone. Returns the work requests.
__attribute__((noinline)) uint64_t MoveAll(RdmaWorld& world,
                                           const std::shared_ptr<const MovePlan>& plan) {
  const auto operation = world.transport_.Start(plan, 0, 1);
  if (!world.Finish(*operation) || operation->error()) std::abort();
  return operation->progress().chunks;
}

// Arguments: order, operation, devices a side.
void MoveBlocks(benchmark::State& state) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < state.range(2); ++i) names.push_back("nic" + std::to_string(i));
  InstantVerbs here(names), there(names);
  RdmaWorld world(here, there, {}, {});
  const TestArena arena(uint64_t{kBlocks} * kBlockBytes, TestArena::Untouched());
  const auto plan = world.WithNics(
      BlocksOf(static_cast<BlockOrder>(state.range(0)),
               state.range(1) == 0 ? wire::Operation::kRead : wire::Operation::kWrite,
               world.Local(arena), world.Remote(world.Describe(arena))));
  world.MoveSomething();
  uint64_t requests = 0;
  for (auto _ : state) requests += MoveAll(world, plan);
  state.counters["requests"] =
      benchmark::Counter(static_cast<double>(requests) / static_cast<double>(state.iterations()));
  state.counters["per_request"] = benchmark::Counter(
      static_cast<double>(requests), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["requests_per_second"] =
      benchmark::Counter(static_cast<double>(requests), benchmark::Counter::kIsRate);
}
BENCHMARK(MoveBlocks)
    ->ArgNames({"contiguous", "write", "devices"})
    ->Args({kRandom, 0, 1})
    ->Args({kRandom, 1, 1})
    ->Args({kRandom, 0, 8})
    ->Args({kContiguous, 0, 1})
    ->Unit(benchmark::kMillisecond);

// Of one page each; the time is of registering and of taking back together.
void RegisterChunks(benchmark::State& state) {
  const auto verbs = MakeSystemVerbs();
  RdmaOptions options;
  options.chunk_bytes = kPage;
  const auto devices = RdmaDevices::Open(options, *verbs);
  if (!devices) return state.SkipWithError(devices.error().message.c_str());
  RdmaRegistrar registrar(**devices);
  CountingMapper mapper;
  const TestArena arena(static_cast<uint64_t>(state.range(0)) * kPage);
  const auto allocation = *memory::MappedAllocation::Create(mapper, arena.source());
  for (auto _ : state) {
    const auto registered = registrar.Register({{allocation, 0, arena.size()}}, {true, true});
    if (!registered) return state.SkipWithError(registered.error().message.c_str());
    if ((*registered)->chunks() != static_cast<size_t>(state.range(0))) std::abort();
  }
  state.counters["per_chunk"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(RegisterChunks)->Arg(1)->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace gantry::transport
