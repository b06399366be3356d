// The command line, its environment variable and the exit codes.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "gantryctl/exit_code.h"
#include "gantryctl/gantryctl_config.h"
#include "gantryctl/sidecar_commands.h"

namespace gantry::gantryctl {
namespace {

struct Outcome : ParsedCommandLine {
  std::string said;  // to standard error
};

Outcome Parse(std::vector<std::string> words) {
  words.insert(words.begin(), "gantryctl");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Outcome outcome{ParseCommandLine(static_cast<int>(words.size()), pointers.data()), ""};
  ::testing::internal::GetCapturedStdout();
  outcome.said = ::testing::internal::GetCapturedStderr();
  return outcome;
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

TEST(CommandLineTest, RefusesMistakesWithTheUsageCode) {
  const std::vector<std::vector<std::string>> mistakes = {
      {}, {"frobnicate"}, {"status", "--loud"}, {"transfers", "--interval-ms", "1"}};
  for (const auto& words : mistakes) EXPECT_EQ(Parse(words).exit_code, kExitUsage);
  EXPECT_EQ(Parse({"--help"}).exit_code, kExitOk);
  EXPECT_EQ(Parse({"--version"}).exit_code, kExitOk);
}

TEST(CommandLineTest, SaysWhereTheBenchmarkWent) {
  const std::vector<std::vector<std::string>> calls = {
      {"bench"}, {"bench", "--block", "4KiB", "--json"}, {"--json", "bench"}, {"bench", "--help"}};
  for (const auto& words : calls) {
    const auto parsed = Parse(words);
    EXPECT_EQ(parsed.exit_code, kExitUsage);
    EXPECT_EQ(parsed.said,
              "gantryctl: 'bench' is now the program gantry-bench, with the same options\n");
  }
  EXPECT_EQ(Parse({"status", "bench"}).said.find("gantry-bench"), std::string::npos);
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
