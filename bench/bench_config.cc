#include "bench/bench_config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <string>

#include "client/include/gantry.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/size_text.h"

namespace gantry::bench {
namespace {

using gantryctl::FormatSize;
using gantryctl::kExitOk;
using gantryctl::kExitUsage;
using gantryctl::ParseSize;
using gantryctl::ParseSizes;

constexpr char kExitCodes[] =
    "Exit codes: 0 ok; 1 failed, or bytes are wrong; 2 wrong command line; 3 a sidecar does not\n"
    "answer; 130 interrupted.";

// An option that takes a size such as 64KiB.
CLI::Option* AddSize(CLI::App& app, const std::string& name, uint64_t& value,
                     const std::string& help) {
  const auto take = [&value, name](const CLI::results_t& words) {
    const auto size = ParseSize(words.at(0));
    if (!size) throw CLI::ValidationError(name, size.error().message + "; " + size.error().hint);
    value = *size;
    return true;
  };
  return app.add_option(name, take, help)->type_name("SIZE")->default_str(FormatSize(value));
}

// The bytes that are moved, and their mover.
void AddTransfers(CLI::App& app, BenchOptions& options) {
  app.add_option("--transport", options.transport,
                 "What to measure: shm; tcp, over loopback; rdma, from a device to itself, against "
                 "perftest; ipc, between the first GPU and the last")
      ->check(CLI::IsMember({"shm", "tcp", "rdma", "ipc"}))
      ->capture_default_str();
  AddSize(app, "--block", options.block_bytes, "Bytes of a block");
  AddSize(app, "--bytes", options.bytes, "Bytes of each side, all of them moved each time");
  app.add_option("--buffers", options.buffers,
                 "Buffers that each side's bytes are, as layers of a cache; one view pairs them")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Block ids in one transfer; 0: all")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 32))  // CLI11 takes -1 where none is checked
      ->capture_default_str();
  app.add_option("--inflight", options.inflight, "Transfers at a time, of --batch blocks each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rounds", options.rounds, "How often each iteration moves the same")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  const std::map<std::string, BenchOptions::Encoding> encodings = {
      {"cbor", BenchOptions::Encoding::kCbor}, {"json", BenchOptions::Encoding::kJson}};
  app.add_option("--encoding", options.encoding, "Of the requests; default cbor")
      ->transform(CLI::CheckedTransformer(encodings).description("cbor|json"));
  const std::map<std::string, BenchOptions::Order> orders = {
      {"random", BenchOptions::Order::kRandom}, {"sequential", BenchOptions::Order::kSequential}};
  app.add_option("--order", options.order, "Of the blocks, on both sides; default random")
      ->transform(CLI::CheckedTransformer(orders).description("random|sequential"));
  const std::map<std::string, BenchOptions::Operation> operations = {
      {"read", BenchOptions::Operation::kRead}, {"write", BenchOptions::Operation::kWrite}};
  app.add_option("--op", options.operation, "read pulls from the peer, write pushes; default read")
      ->transform(CLI::CheckedTransformer(operations).description("read|write"));
  const std::map<std::string, bool> executors = {{"self", false}, {"peer", true}};
  app.add_option("--executor", options.peer_executes, "Which sidecar moves the bytes; default self")
      ->transform(CLI::CheckedTransformer(executors).description("self|peer"));
}

// How the sidecars move it, and from which memory.
void AddMeans(CLI::App& app, BenchOptions& options) {
  app.add_option("--workers", options.workers, "Copy workers, and threads of the ceiling")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--streams", options.streams, "tcp: connections, of the ceiling as well")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  app.add_option("--gpu-copies", options.gpu_copies, "ipc: as the sidecar's option")
      ->check(CLI::IsMember({"auto", "engines", "kernel"}))
      ->capture_default_str();
  app.add_option("--spin-us", options.spin_us, "As the sidecar's option")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  using Memory = BenchOptions::Memory;
  const std::map<std::string, Memory> memories = {
      {"host", Memory::kHost}, {"device", Memory::kDevice}, {"virtual", Memory::kVirtual}};
  app.add_option("--memory", options.memory,
                 "Of the host, or of the first GPU and the last, in one allocation a side or in "
                 "pieces of virtual memory; default host, and with ipc device")
      ->transform(CLI::CheckedTransformer(memories).description("host|device|virtual"));
  AddSize(app, "--piece", options.piece_bytes, "Of virtual memory: a multiple of 2MiB");
  app.add_flag("!--no-checksum", options.checksum, "tcp: leave out the CRC32C of the bytes");
}

// How often it is measured, and which calls are.
void AddMeasurements(CLI::App& app, BenchOptions& options) {
  app.add_option("-n,--iterations", options.iterations, "Each after one of the ceiling")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--latency", options.latency, "4 KiB transfers, one at a time, over REST");
  app.add_flag("--notify", options.notify, "Notifications, one at a time, over REST");
  app.add_option("--calls", options.calls, "With --latency and --notify: how many")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--gap-ms", options.gap_ms,
                 "With --latency and --notify: pause of the second loop; 0: none")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  app.add_flag("--busy-gaps", options.busy_gaps,
               "The caller computes in the pauses, as an engine does; else it sleeps");
  app.add_flag("--table", options.table,
               "Grid of 4 KiB to 64 MiB by --batches, as nixlbench prints");
  app.add_option_function<std::string>(
         "--batches",
         [&options](const std::string& text) {
           const auto batches = ParseSizes(text);
           if (!batches) {
             throw CLI::ValidationError("--batches",
                                        batches.error().message + "; write for example 1,16,256");
           }
           options.table_batches = *batches;
         },
         "With --table: blocks per transfer")
      ->type_name("N,N,...")
      ->default_str("1,16,256");
}

void AddOptions(CLI::App& app, BenchOptions& options) {
  AddTransfers(app, options);
  AddMeans(app, options);
  AddMeasurements(app, options);
  app.add_option("--sidecar", options.sidecar,
                 "The binary; default: gantry-sidecar beside gantry-bench");
  app.add_flag("--keep", options.keep, "Leave the folder with the sidecars' logs");
  app.add_flag("--json", options.json, "Print JSON");
}

}  // namespace

ParsedBenchCommandLine ParseBenchCommandLine(int argc, char** argv) {
  ParsedBenchCommandLine parsed;
  const char* const folder = std::getenv("TMPDIR");
  if (folder != nullptr && *folder != '\0') parsed.options.temporary_folder = folder;

  CLI::App app("Measures transfers against memcpy, with two sidecars of its own.", "gantry-bench");
  app.footer(kExitCodes);
  app.set_version_flag("--version", std::string("gantry-bench ") + GANTRY_VERSION);
  AddOptions(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& outcome) {
    app.exit(outcome);
    parsed.exit_code = outcome.get_exit_code() == 0 ? kExitOk : kExitUsage;  // 0: help or version
  }
  return parsed;
}

}  // namespace gantry::bench
