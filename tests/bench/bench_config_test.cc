#include "bench/bench_config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/bench_throughput.h"
#include "gantryctl/exit_code.h"

namespace gantry::bench {
namespace {

using gantryctl::kExitOk;
using gantryctl::kExitUsage;

ParsedBenchCommandLine Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "gantry-bench");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  ParsedBenchCommandLine parsed =
      ParseBenchCommandLine(static_cast<int>(words.size()), pointers.data());
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(BenchConfig, ReadsSizesAndOrder) {
  const auto parsed = Parse({"--block", "4KiB", "--bytes", "256MiB", "--order", "sequential",
                             "--op", "write", "--workers", "3", "--batch", "64", "-n", "7"});
  ASSERT_FALSE(parsed.exit_code);
  const BenchOptions& options = parsed.options;
  EXPECT_EQ(options.block_bytes, 4096u);
  EXPECT_EQ(options.bytes, 256u << 20);
  EXPECT_EQ(options.order, BenchOptions::Order::kSequential);
  EXPECT_EQ(options.operation, BenchOptions::Operation::kWrite);
  EXPECT_EQ(options.workers, 3);
  EXPECT_EQ(options.batch, 64u);
  EXPECT_EQ(options.iterations, 7);
  EXPECT_TRUE(CheckBenchOptions(options));
}

TEST(BenchConfig, ReadsManyBuffers) {
  const auto parsed = Parse({"--block", "32KiB", "--buffers", "64", "--encoding", "json",
                             "--inflight", "4", "--rounds", "16"});
  ASSERT_FALSE(parsed.exit_code);
  const BenchOptions& options = parsed.options;
  EXPECT_EQ(options.buffers, 64u);
  EXPECT_EQ(options.encoding, BenchOptions::Encoding::kJson);
  EXPECT_EQ(options.inflight, 4);
  EXPECT_EQ(options.rounds, 16);
  EXPECT_TRUE(CheckBenchOptions(options));
  EXPECT_EQ(Parse({}).options.encoding, BenchOptions::Encoding::kCbor);
}

TEST(BenchConfig, ReadsPiecesOfVirtualMemory) {
  const BenchOptions options =
      Parse({"--transport", "ipc", "--memory", "virtual", "--piece", "2MiB"}).options;
  EXPECT_TRUE(options.is_virtual() && options.on_gpus());
  EXPECT_EQ(options.piece_bytes, 2u << 20);
  EXPECT_TRUE(CheckBenchOptions(options));
  const BenchOptions plain = Parse({"--transport", "ipc", "--memory", "device"}).options;
  EXPECT_TRUE(!plain.is_virtual() && plain.on_gpus());
  EXPECT_EQ(plain.piece_bytes, 20u << 20);
}

TEST(BenchConfig, RefusesWhatDoesNotFit) {
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
  for (const std::vector<std::string>& words : mistakes) {
    const auto parsed = Parse(words);
    ASSERT_FALSE(parsed.exit_code);
    const Status fine = CheckBenchOptions(parsed.options);
    ASSERT_FALSE(fine) << ::testing::PrintToString(words);
    EXPECT_NE(fine.error().hint, "");
  }
  EXPECT_TRUE(CheckBenchOptions(
      Parse({"--bytes", "8GiB", "--block", "4KiB", "--buffers", "64", "--batch", "16384"})
          .options));
}

TEST(BenchConfig, RefusesOptionsThatDoNotAddUp) {
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

TEST(BenchConfig, RefusesMistakesWithTheUsageCode) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"frobnicate"},         {"--block", "64K"},       {"--transport", "pigeon"},
      {"--workers", "0"},     {"--order", "backwards"}, {"--buffers", "0"},
      {"--buffers", "1025"},  {"--rounds", "0"},        {"--encoding", "xml"},
      {"--memory", "managed"}};
  for (const auto& words : mistakes) EXPECT_EQ(Parse(words).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(Parse({"--version"}).exit_code, kExitOk);
}

TEST(BenchConfig, PrintsJsonWhenAskedTo) {
  EXPECT_FALSE(Parse({}).options.json);
  EXPECT_TRUE(Parse({"--json"}).options.json);
}

}  // namespace
}  // namespace gantry::bench
