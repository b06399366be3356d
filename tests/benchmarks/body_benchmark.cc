// Reading the body of POST /v1/transfers: block ids and ranges, as JSON and as CBOR, and ids packed
// as libgantry sends them.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "lib/codec/body_writer.h"
#include "lib/wire/transfers_body.h"

namespace gantry::wire {
namespace {

constexpr uint64_t kLength = 65536;

void WriteHead(BodyWriter& writer) {
  writer.BeginObject().Field("workload", "decode-0").Field("op", "read");
  writer.Key("local").BeginList().Text("kv.0").EndList();
  writer.Key("remote").BeginList().Text("prefill-7/engine/kv.0").EndList();
}

std::string BlocksBody(BodyFormat format, uint64_t count) {
  BodyWriter writer(format);
  WriteHead(writer);
  for (const char* side : {"local_blocks", "remote_blocks"}) {
    writer.Key(side).BeginList();
    for (uint64_t i = 0; i < count; ++i) writer.Unsigned(i * 7919 % 100'000);
    writer.EndList();
  }
  writer.EndObject();
  return writer.Take();
}

std::string RangesBody(BodyFormat format, uint64_t count) {
  BodyWriter writer(format);
  WriteHead(writer);
  writer.Key("ranges").BeginList();
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = i * 7919 % 100'000 * kLength;
    writer.BeginList().Unsigned(0).Unsigned(offset).Unsigned(0).Unsigned(offset).Unsigned(kLength);
    writer.EndList();
  }
  writer.EndList().EndObject();
  return writer.Take();
}

void Read(benchmark::State& state, BodyFormat format, const std::string& body) {
  for (auto _ : state) {
    auto read = ReadTransferBody(format, body);
    if (!read) abort();
    benchmark::DoNotOptimize(read);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * body.size()));
  state.counters["body_bytes"] = static_cast<double>(body.size());
  state.counters["per_item"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BlocksAsJson(benchmark::State& state) {
  Read(state, BodyFormat::kJson, BlocksBody(BodyFormat::kJson, state.range(0)));
}
void BlocksAsCbor(benchmark::State& state) {
  Read(state, BodyFormat::kCbor, BlocksBody(BodyFormat::kCbor, state.range(0)));
}
void BlocksPacked(benchmark::State& state) {
  std::vector<uint64_t> ids;
  for (int64_t i = 0; i < state.range(0); ++i) {
    ids.push_back(static_cast<uint64_t>(i * 7919 % 100'000));
  }
  BodyWriter writer(BodyFormat::kCbor);
  WriteHead(writer);
  for (const char* side : {"local_blocks", "remote_blocks"}) writer.Key(side).Packed(ids);
  Read(state, BodyFormat::kCbor, writer.EndObject().Take());
}
void RangesAsJson(benchmark::State& state) {
  Read(state, BodyFormat::kJson, RangesBody(BodyFormat::kJson, state.range(0)));
}
void RangesAsCbor(benchmark::State& state) {
  Read(state, BodyFormat::kCbor, RangesBody(BodyFormat::kCbor, state.range(0)));
}

BENCHMARK(BlocksAsJson)->Arg(1)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536);
BENCHMARK(BlocksAsCbor)->Arg(1)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536);
BENCHMARK(BlocksPacked)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536);
BENCHMARK(RangesAsJson)->Arg(64)->Arg(4096)->Arg(65536);
BENCHMARK(RangesAsCbor)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace gantry::wire
