// Settings of the plugin: NIXL's parameters of the backend, and behind them the environment. A
// plain value.
#pragma once

#include <cstdint>
#include <string>

#include "connectors/nixl/abi/nixl_interface.h"
#include "lib/base/result.h"

namespace gantry::nixl {

struct PluginConfig {
  std::string run_dir;  // of the sidecar
  std::string host;     // at which other pods reach this one; empty: found out
  uint64_t timeout_ms = 2'000;
  uint64_t deadline_ms = 0;    // 0: the sidecar's default
  std::string require_path;    // empty: any
  bool adopts_private = true;  // memory of malloc is made shared memory where it is
};

// The user takes a NIXL that is newer than those that are tested.
bool AllowsNewerNixl();

// The parameters that NIXL shows for this backend.
Parameters DefaultParameters();

// kInvalidArgument names the parameter.
Result<PluginConfig> ReadPluginConfig(const Parameters& parameters);

}  // namespace gantry::nixl
