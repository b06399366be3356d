#include "gantryctl/gantryctl_config.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "client/include/gantry.h"
#include "gantryctl/exit_code.h"
#include "lib/base/name.h"

namespace gantry::gantryctl {
namespace {

constexpr char kSocketVariable[] = "GANTRY_API_SOCKET";
constexpr char kDefaultSocket[] = "/run/gantry/api.sock";
constexpr char kExitCodes[] =
    "Exit codes: 0 ok; 1 failed; 2 wrong command line; 3 no sidecar answers; 4 it answers and is\n"
    "not healthy (status: not ready, doctor: something fails).";

std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string IsName(const std::string& text) {
  const Status fine = CheckName(text, "");
  return fine ? "" : fine.error().message;
}

// Whether the caller named the command that went to gantry-bench.
bool IsMoved(const CLI::App& app) {
  const std::vector<std::string> words = app.remaining();
  return app.get_subcommands().empty() && !words.empty() && words.front() == "bench";
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
  CLI::App* plugin = add("nixl-plugin", "Copy NIXL's backend GANTRY and its package into a folder",
                         Command::kNixlPlugin);
  plugin->add_option("folder", line.folder, "Made where it is missing")->required();
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, char** argv) {
  ParsedCommandLine parsed;
  CommandLine& line = parsed.command_line;
  line.socket = FromEnvironment(kSocketVariable, "");
  line.socket_named = !line.socket.empty();
  if (!line.socket_named) line.socket = kDefaultSocket;

  CLI::App app("Shows a Gantry sidecar, and examines the machine.", "gantryctl");
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
    if (IsMoved(app)) {
      std::cerr << "gantryctl: 'bench' is now the program gantry-bench, with the same options\n";
      parsed.exit_code = kExitUsage;
    } else {
      const bool asked_for = outcome.get_exit_code() == 0;  // help or version
      PrintUsage(app, outcome);
      parsed.exit_code = asked_for ? kExitOk : kExitUsage;
    }
  }
  if (socket->count() > 0) line.socket_named = true;
  std::error_code ignored;
  if (std::filesystem::is_directory(line.socket, ignored)) line.socket += "/api.sock";
  return parsed;
}

}  // namespace gantry::gantryctl
