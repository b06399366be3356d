// What it costs to find one of many buffers, to register many, and to keep them.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sidecar/registry/buffer_registry.h"

namespace gantry::registry {
namespace {

constexpr uint64_t kViewBytes = 4096;
constexpr int kNamesAsked = 4096;

// Maps nothing: the workers' time is not the registry's.
class FreeMapper final : public memory::MemoryMapper {
 public:
  Result<memory::MappingId> Map(const memory::AllocationSource&) override {
    return memory::MappingId{++maps, 1};
  }
  Status Unmap(memory::MappingId) override { return {}; }
  Result<std::optional<memory::ProbeMismatch>> Compare(
      std::span<const memory::MemoryProbe>) override {
    return std::nullopt;
  }
  uint32_t maps = 0;
};

std::string NameOf(int64_t i) { return "layer." + std::to_string(i) + ".kv"; }

// A registry with one workload and one allocation, in which each buffer is a view.
class Stock {
 public:
  explicit Stock(int64_t views)
      : workloads_(WorkloadLimits{}, [](const WorkloadInfo&, std::string_view) {}),
        registry_(RegistryLimits{}, mapper_, workloads_) {
    const auto owner = workloads_.Put("engine-0", "engine", getuid(), std::nullopt);
    request_.workload = owner->name;
    const uint64_t size = static_cast<uint64_t>(views) * kViewBytes;
    UniqueFd fd(memfd_create("benchmark", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) abort();
    if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) abort();
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    const auto tokens = workloads_.KeepFds(owner->name, owner->generation, std::move(fds));
    request_.allocations.push_back({wire::MemoryKind::kHost, tokens->front(), size});
    for (int64_t i = 0; i < views; ++i) {
      wire::BufferSpec spec;
      spec.name = NameOf(i);
      spec.pieces = {{0, static_cast<uint64_t>(i) * kViewBytes, kViewBytes}};
      request_.buffers.push_back(std::move(spec));
    }
  }

  void Register() {
    auto registered = registry_.Register(request_);
    if (!registered) abort();
    buffers_ = *std::move(registered);
  }
  void Remove() {
    for (const auto& buffer : buffers_) {
      if (!registry_.Remove(buffer->description().id, Clock::now())) abort();
    }
    buffers_.clear();
  }

  const BufferRegistry& registry() const { return registry_; }
  const std::vector<std::shared_ptr<Buffer>>& buffers() const { return buffers_; }
  uint32_t maps() const { return mapper_.maps; }

 private:
  FreeMapper mapper_;
  WorkloadTable workloads_;
  BufferRegistry registry_;
  wire::RegistrationRequest request_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

// In an order that no cache foresees.
std::vector<std::string> Shuffled(const Stock& stock, std::string (*text)(const Buffer&)) {
  std::mt19937 random(1);
  std::vector<std::string> texts;
  for (int i = 0; i < kNamesAsked; ++i) {
    texts.push_back(text(*stock.buffers()[random() % stock.buffers().size()]));
  }
  return texts;
}

void FindByName(benchmark::State& state) {
  Stock stock(state.range(0));
  stock.Register();
  const auto names = Shuffled(stock, [](const Buffer& b) { return b.description().name; });
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(stock.registry().ByName("engine-0", names[next++ % names.size()]));
  }
}

void FindById(benchmark::State& state) {
  Stock stock(state.range(0));
  stock.Register();
  const auto ids = Shuffled(stock, [](const Buffer& b) { return b.description().id; });
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(stock.registry().ById(ids[next++ % ids.size()]));
  }
}

// What a transfer does with each buffer that it names.
void UseByName(benchmark::State& state) {
  Stock stock(state.range(0));
  stock.Register();
  const auto names = Shuffled(stock, [](const Buffer& b) { return b.description().name; });
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(stock.registry().Acquire("engine-0", names[next++ % names.size()], 0));
  }
}

// Views of one allocation in one request; the counter says what one of them takes.
void RegisterViews(benchmark::State& state) {
  Stock stock(state.range(0));
  for (auto _ : state) {
    stock.Register();
    state.PauseTiming();
    stock.Remove();
    state.ResumeTiming();
  }
  const auto views = static_cast<double>(state.iterations() * state.range(0));
  state.counters["per_view"] =
      benchmark::Counter(views, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["maps_per_request"] =
      static_cast<double>(stock.maps()) / static_cast<double>(state.iterations());
}

// Heap bytes for each buffer that is kept.
void KeepBuffers(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    Stock stock(state.range(0));
    const size_t before = mallinfo2().uordblks;
    state.ResumeTiming();
    stock.Register();
    state.PauseTiming();
    state.counters["bytes_per_buffer"] =
        static_cast<double>(mallinfo2().uordblks - before) / static_cast<double>(state.range(0));
    state.ResumeTiming();
  }
}

void Counts(benchmark::internal::Benchmark* benchmark) {
  for (const int count : {10, 32, 100, 316, 1000, 3162, 10'000}) benchmark->Arg(count);
}

BENCHMARK(FindByName)->Apply(Counts);
BENCHMARK(FindById)->Apply(Counts);
BENCHMARK(UseByName)->Apply(Counts);
BENCHMARK(RegisterViews)->Arg(1)->Arg(1000)->Arg(10'000)->Unit(benchmark::kMicrosecond);
BENCHMARK(KeepBuffers)->Apply(Counts)->Iterations(3)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gantry::registry
