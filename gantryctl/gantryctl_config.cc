#include "gantryctl/gantryctl_config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/size_text.h"
#include "lib/base/name.h"

namespace gantry::gantryctl {
namespace {

constexpr char kSocketVariable[] = "GANTRY_API_SOCKET";
constexpr char kDefaultSocket[] = "/run/gantry/api.sock";
constexpr char kExitCodes[] =
    "Exit codes: 0 ok; 1 failed; 2 wrong command line; 3 no sidecar answers; 4 it answers and is\n"
    "not healthy (status: not ready, doctor: something fails); 130 interrupted.";

std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string IsName(const std::string& text) {
  const Status fine = CheckName(text, "");
  return fine ? "" : fine.error().message;
}

// Says which word is no command, where the library says that one is missing.
void PrintUsage(const CLI::App& app, const CLI::ParseError& mistake) {
  const std::vector<std::string> words = app.remaining();
  if (words.empty() || mistake.get_name() != "RequiredError") {
    app.exit(mistake);
    return;
  }
  std::string known;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  std::cerr << "'" << words.front() << "' is no command; the commands are " << known << "\n";
}

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
void AddBenchTransfers(CLI::App& app, BenchOptions& bench) {
  app.add_option("--transport", bench.transport,
                 "What to measure: shm; tcp, over loopback; rdma, from a device to itself, against "
                 "perftest; "
                 "ipc, between the first GPU and the last")
      ->check(CLI::IsMember({"shm", "tcp", "rdma", "ipc"}))
      ->capture_default_str();
  AddSize(app, "--block", bench.block_bytes, "Bytes of a block");
  AddSize(app, "--bytes", bench.bytes, "Bytes of each side, all of them moved each time");
  app.add_option("--buffers", bench.buffers,
                 "Buffers that each side's bytes are, as layers of a cache; one view pairs them")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--batch", bench.batch, "Block ids in one transfer; 0: all")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 32))  // CLI11 takes -1 where none is checked
      ->capture_default_str();
  app.add_option("--inflight", bench.inflight, "Transfers at a time, of --batch blocks each")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--rounds", bench.rounds, "How often each iteration moves the same")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  const std::map<std::string, BenchOptions::Encoding> encodings = {
      {"cbor", BenchOptions::Encoding::kCbor}, {"json", BenchOptions::Encoding::kJson}};
  app.add_option("--encoding", bench.encoding, "Of the requests; default cbor")
      ->transform(CLI::CheckedTransformer(encodings).description("cbor|json"));
  const std::map<std::string, BenchOptions::Order> orders = {
      {"random", BenchOptions::Order::kRandom}, {"sequential", BenchOptions::Order::kSequential}};
  app.add_option("--order", bench.order, "Of the blocks, on both sides; default random")
      ->transform(CLI::CheckedTransformer(orders).description("random|sequential"));
  const std::map<std::string, BenchOptions::Operation> operations = {
      {"read", BenchOptions::Operation::kRead}, {"write", BenchOptions::Operation::kWrite}};
  app.add_option("--op", bench.operation, "read pulls from the peer, write pushes; default read")
      ->transform(CLI::CheckedTransformer(operations).description("read|write"));
  const std::map<std::string, bool> executors = {{"self", false}, {"peer", true}};
  app.add_option("--executor", bench.peer_executes, "Which sidecar moves the bytes; default self")
      ->transform(CLI::CheckedTransformer(executors).description("self|peer"));
}

// How the sidecars move it, and from which memory.
void AddBenchMeans(CLI::App& app, BenchOptions& bench) {
  app.add_option("--workers", bench.workers, "Copy workers, and threads of the ceiling")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--streams", bench.streams, "tcp: connections, of the ceiling as well")
      ->check(CLI::Range(1, 32))
      ->capture_default_str();
  app.add_option("--gpu-copies", bench.gpu_copies, "ipc: as the sidecar's option")
      ->check(CLI::IsMember({"auto", "engines", "kernel"}))
      ->capture_default_str();
  app.add_option("--spin-us", bench.spin_us, "As the sidecar's option")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  using Memory = BenchOptions::Memory;
  const std::map<std::string, Memory> memories = {
      {"host", Memory::kHost}, {"device", Memory::kDevice}, {"virtual", Memory::kVirtual}};
  app.add_option("--memory", bench.memory,
                 "Of the host, or of the first GPU and the last, in one allocation a side or in "
                 "pieces of virtual memory; default host, and with ipc device")
      ->transform(CLI::CheckedTransformer(memories).description("host|device|virtual"));
  AddSize(app, "--piece", bench.piece_bytes, "Of virtual memory: a multiple of 2MiB");
  app.add_flag("!--no-checksum", bench.checksum, "tcp: leave out the CRC32C of the bytes");
}

// How often it is measured, and which calls are.
void AddBenchMeasurements(CLI::App& app, BenchOptions& bench) {
  app.add_option("-n,--iterations", bench.iterations, "Each after one of the ceiling")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--latency", bench.latency, "4 KiB transfers, one at a time, over REST");
  app.add_flag("--notify", bench.notify, "Notifications, one at a time, over REST");
  app.add_option("--calls", bench.calls, "With --latency and --notify: how many")
      ->check(CLI::Range(10, 1'000'000))
      ->capture_default_str();
  app.add_option("--gap-ms", bench.gap_ms,
                 "With --latency and --notify: pause of the second loop; 0: none")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  app.add_flag("--busy-gaps", bench.busy_gaps,
               "The caller computes in the pauses, as an engine does; else it sleeps");
  app.add_flag("--table", bench.table, "Grid of 4 KiB to 64 MiB by --batches, as nixlbench prints");
  app.add_option_function<std::string>(
         "--batches",
         [&bench](const std::string& text) {
           const auto batches = ParseSizes(text);
           if (!batches) {
             throw CLI::ValidationError("--batches",
                                        batches.error().message + "; write for example 1,16,256");
           }
           bench.table_batches = *batches;
         },
         "With --table: blocks per transfer")
      ->type_name("N,N,...")
      ->default_str("1,16,256");
}

void AddBench(CLI::App& app, BenchOptions& bench) {
  AddBenchTransfers(app, bench);
  AddBenchMeans(app, bench);
  AddBenchMeasurements(app, bench);
  app.add_option("--sidecar", bench.sidecar,
                 "The binary; default: gantry-sidecar beside gantryctl");
  app.add_flag("--keep", bench.keep, "Leave the folder with the sidecars' logs");
}

void AddCommands(CLI::App& app, CommandLine& line) {
  const auto add = [&](const char* name, const char* help, Command command) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->callback([&line, command] { line.command = command; });
    sub->fallthrough();
    return sub;
  };
  add("status", "The sidecar, its workers, paths, peers and workloads", Command::kStatus);
  CLI::App* buffers = add("buffers", "Registered buffers and their paths", Command::kBuffers);
  buffers->add_option("--workload", line.workload, "Only of this one")->check(IsName);
  add("peers", "Other sidecars: state, path taken, why not a faster one", Command::kPeers);
  add("workloads", "Who holds a lease", Command::kWorkloads);
  CLI::App* transfers = add("transfers", "Transfers under way", Command::kTransfers);
  transfers->add_option("--workload", line.workload, "Only of this one")->check(IsName);
  transfers->add_flag("--all", line.all, "Finished ones, too");
  transfers->add_flag("--watch", line.watch, "Keep showing them, until interrupted");
  transfers->add_option("--interval-ms", line.interval_ms, "With --watch")
      ->check(CLI::Range(50, 60'000))
      ->capture_default_str();
  transfers->add_option("--limit", line.limit, "At most so many")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  add("doctor", "What works on this machine, and why the rest does not", Command::kDoctor);
  AddBench(*add("bench", "Measures transfers against memcpy, with two sidecars of its own",
                Command::kBench),
           line.bench);
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, char** argv) {
  ParsedCommandLine parsed;
  CommandLine& line = parsed.command_line;
  line.bench.temporary_folder = FromEnvironment("TMPDIR", "/tmp");
  line.socket = FromEnvironment(kSocketVariable, "");
  line.socket_named = !line.socket.empty();
  if (!line.socket_named) line.socket = kDefaultSocket;

  CLI::App app("Shows and measures a Gantry sidecar.", "gantryctl");
  app.footer(kExitCodes);
  app.set_version_flag("--version", std::string("gantryctl ") + GANTRY_VERSION);
  app.require_subcommand(1);
  CLI::Option* socket =
      app.add_option("--socket", line.socket, "The sidecar's API socket, or run directory");
  socket->type_name("PATH")->default_str(std::string("$") + kSocketVariable + " or " +
                                         kDefaultSocket);
  app.add_flag("--json", line.json, "Print JSON");
  AddCommands(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& outcome) {
    const bool asked_for = outcome.get_exit_code() == 0;  // help or version
    PrintUsage(app, outcome);
    parsed.exit_code = asked_for ? kExitOk : kExitUsage;
  }
  if (socket->count() > 0) line.socket_named = true;
  std::error_code ignored;
  if (std::filesystem::is_directory(line.socket, ignored)) line.socket += "/api.sock";
  return parsed;
}

}  // namespace gantry::gantryctl
