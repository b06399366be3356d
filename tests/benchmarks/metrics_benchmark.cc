// What counting costs on the path of a transfer, and what a scrape costs.
#include <benchmark/benchmark.h>

#include "sidecar/metrics/metrics.h"

namespace gantry::metrics {
namespace {

void CountATransfer(benchmark::State& state) {
  static Metrics metrics("benchmark");
  TransferSample sample;
  sample.path = wire::Path::kShm;
  sample.bytes = 65536;
  sample.descriptors_in = sample.descriptors_out = sample.chunks_succeeded = 16;
  sample.seconds = 40e-6;
  for (auto _ : state) metrics.TransferEnded(sample);
}

void CountARequest(benchmark::State& state) {
  Metrics metrics("benchmark");
  for (auto _ : state) metrics.HttpRequest("/v1/transfers", "POST", 200, 40e-6);
}

void Scrape(benchmark::State& state) {
  const Metrics metrics("benchmark");
  for (auto _ : state) benchmark::DoNotOptimize(metrics.Text());
}

BENCHMARK(CountATransfer)->Threads(1)->Threads(2);
BENCHMARK(CountARequest);
BENCHMARK(Scrape)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace gantry::metrics
