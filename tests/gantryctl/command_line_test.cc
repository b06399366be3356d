// The command line, its environment variable and the exit codes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "bench/bench_throughput.h"
#include "gantryctl/exit_code.h"
#include "gantryctl/gantryctl_config.h"
#include "gantryctl/sidecar_commands.h"

namespace gantry::gantryctl {
namespace {

ParsedCommandLine Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "gantryctl");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ParsedCommandLine parsed = ParseCommandLine(static_cast<int>(words.size()), pointers.data());
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(CommandLineTest, TakesGlobalOptionsBeforeAndAfterTheCommand) {
  for (const auto& parsed : {Parse({"--socket", "/a/b", "--json", "peers"}),
                             Parse({"peers", "--socket", "/a/b", "--json"})}) {
    ASSERT_FALSE(parsed.exit_code);
    EXPECT_EQ(parsed.command_line.command, Command::kPeers);
    EXPECT_EQ(parsed.command_line.socket, "/a/b");
    EXPECT_TRUE(parsed.command_line.socket_named);
    EXPECT_TRUE(parsed.command_line.json);
  }
}

TEST(CommandLineTest, FindsTheSocketInTheEnvironmentOrByDefault) {
  unsetenv("GANTRY_API_SOCKET");
  EXPECT_EQ(Parse({"status"}).command_line.socket, "/run/gantry/api.sock");
  EXPECT_FALSE(Parse({"status"}).command_line.socket_named);
  setenv("GANTRY_API_SOCKET", "/from/environment", 1);
  EXPECT_EQ(Parse({"status"}).command_line.socket, "/from/environment");
  EXPECT_TRUE(Parse({"status"}).command_line.socket_named);
  EXPECT_EQ(Parse({"status", "--socket", "/named"}).command_line.socket, "/named");
  unsetenv("GANTRY_API_SOCKET");
}

TEST(CommandLineTest, ReadsTheBenchmark) {
  const auto parsed =
      Parse({"bench", "--block", "4KiB", "--bytes", "256MiB", "--order", "sequential", "--op",
             "write", "--workers", "3", "--batch", "64", "-n", "7"});
  ASSERT_FALSE(parsed.exit_code);
  const BenchOptions& bench = parsed.command_line.bench;
  EXPECT_EQ(bench.block_bytes, 4096u);
  EXPECT_EQ(bench.bytes, 256u << 20);
  EXPECT_EQ(bench.order, BenchOptions::Order::kSequential);
  EXPECT_EQ(bench.operation, BenchOptions::Operation::kWrite);
  EXPECT_EQ(bench.workers, 3);
  EXPECT_EQ(bench.batch, 64u);
  EXPECT_EQ(bench.iterations, 7);
  EXPECT_TRUE(CheckBenchOptions(bench));
}

TEST(CommandLineTest, ReadsManyBuffers) {
  const auto parsed = Parse({"bench", "--block", "32KiB", "--buffers", "64", "--encoding", "json",
                             "--inflight", "4", "--rounds", "16"});
  ASSERT_FALSE(parsed.exit_code);
  const BenchOptions& bench = parsed.command_line.bench;
  EXPECT_EQ(bench.buffers, 64u);
  EXPECT_EQ(bench.encoding, BenchOptions::Encoding::kJson);
  EXPECT_EQ(bench.inflight, 4);
  EXPECT_EQ(bench.rounds, 16);
  EXPECT_TRUE(CheckBenchOptions(bench));
  EXPECT_EQ(Parse({"bench"}).command_line.bench.encoding, BenchOptions::Encoding::kCbor);
}

TEST(CommandLineTest, ReadsPiecesOfVirtualMemory) {
  const BenchOptions bench =
      Parse({"bench", "--transport", "ipc", "--memory", "virtual", "--piece", "2MiB"})
          .command_line.bench;
  EXPECT_TRUE(bench.is_virtual() && bench.on_gpus());
  EXPECT_EQ(bench.piece_bytes, 2u << 20);
  EXPECT_TRUE(CheckBenchOptions(bench));
  const BenchOptions plain =
      Parse({"bench", "--transport", "ipc", "--memory", "device"}).command_line.bench;
  EXPECT_TRUE(!plain.is_virtual() && plain.on_gpus());
  EXPECT_EQ(plain.piece_bytes, 20u << 20);
}

TEST(CommandLineTest, TheBenchmarkRefusesWhatDoesNotFit) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"--bytes", "1MiB", "--block", "64KiB", "--buffers", "3"},  // 16 blocks
      {"--bytes", "1MiB", "--block", "64KiB", "--buffers", "17"},
      {"--bytes", "4GiB", "--block", "4KiB"},                     // ids
      {"--bytes", "8GiB", "--block", "4KiB", "--buffers", "64"},  // ids times buffers
      {"--buffers", "2", "--latency"},
      {"--rounds", "2", "--notify"},
      {"--encoding", "json", "--table"},
      {"--memory", "virtual"},  // of shm
      {"--transport", "ipc", "--memory", "host"},
      {"--transport", "ipc", "--table"},
      {"--transport", "tcp", "--memory", "device", "--table"},
      {"--transport", "ipc", "--memory", "virtual", "--piece", "3MiB"},
      {"--transport", "ipc", "--memory", "virtual", "--piece", "0"}};
  for (std::vector<std::string> words : mistakes) {
    words.insert(words.begin(), "bench");
    const auto parsed = Parse(words);
    ASSERT_FALSE(parsed.exit_code);
    const Status fine = CheckBenchOptions(parsed.command_line.bench);
    ASSERT_FALSE(fine) << ::testing::PrintToString(words);
    EXPECT_NE(fine.error().hint, "");
  }
  EXPECT_TRUE(CheckBenchOptions(
      Parse({"bench", "--bytes", "8GiB", "--block", "4KiB", "--buffers", "64", "--batch", "16384"})
          .command_line.bench));
}

TEST(CommandLineTest, RefusesMistakesWithTheUsageCode) {
  const std::vector<std::vector<std::string>> mistakes = {{},
                                                          {"frobnicate"},
                                                          {"status", "--loud"},
                                                          {"bench", "--block", "64K"},
                                                          {"bench", "--transport", "pigeon"},
                                                          {"bench", "--workers", "0"},
                                                          {"bench", "--order", "backwards"},
                                                          {"bench", "--buffers", "0"},
                                                          {"bench", "--buffers", "1025"},
                                                          {"bench", "--rounds", "0"},
                                                          {"bench", "--encoding", "xml"},
                                                          {"bench", "--memory", "managed"},
                                                          {"transfers", "--interval-ms", "1"}};
  for (const auto& words : mistakes) EXPECT_EQ(Parse(words).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(Parse({"bench", "--help"}).exit_code, kExitOk);
  EXPECT_EQ(Parse({"--version"}).exit_code, kExitOk);
}

TEST(CommandLineTest, RefusesBenchmarksThatDoNotAddUp) {
  BenchOptions options;
  EXPECT_TRUE(CheckBenchOptions(options));
  options.block_bytes = 12;
  EXPECT_FALSE(CheckBenchOptions(options));
  options.block_bytes = 3 * 4096;
  EXPECT_FALSE(CheckBenchOptions(options));  // 1 GiB is no multiple of it
  options.block_bytes = 512;
  EXPECT_FALSE(CheckBenchOptions(options));  // too many for one transfer
  options.batch = 1024;
  EXPECT_TRUE(CheckBenchOptions(options));
  options.bytes = 0;
  EXPECT_FALSE(CheckBenchOptions(options));
}

TEST(CommandLineTest, SaysThatNoSidecarAnswers) {
  CommandLine line;
  line.socket = ::testing::TempDir() + "there-is-no-such.sock";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunStatus(line), kExitUnreachable);
  EXPECT_EQ(RunBuffers(line), kExitUnreachable);
  EXPECT_EQ(RunPeers(line), kExitUnreachable);
  EXPECT_EQ(RunWorkloads(line), kExitUnreachable);
  EXPECT_EQ(RunTransfers(line), kExitUnreachable);
  line.watch = true;
  EXPECT_EQ(RunTransfers(line), kExitUnreachable);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(line.socket), std::string::npos);
  EXPECT_NE(said.find("--socket"), std::string::npos);
}

}  // namespace
}  // namespace gantry::gantryctl
