// What gantryctl was asked to do. Plain values.
#pragma once

#include <string>

namespace gantry::gantryctl {

enum class Command { kStatus, kBuffers, kPeers, kWorkloads, kTransfers, kDoctor, kNixlPlugin };

struct CommandLine {
  Command command = Command::kStatus;
  std::string socket;
  bool socket_named = false;  // by the caller, not by default
  bool json = false;
  std::string workload;  // only of this one; empty: all
  bool all = false;      // transfers: finished ones, too
  bool watch = false;
  int interval_ms = 500;
  int limit = 100;
  std::string folder;  // nixl-plugin: the one to copy into
};

}  // namespace gantry::gantryctl
