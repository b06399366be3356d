// The hand-off socket: a workload attaches its lease, hands descriptors over and gets tokens.
// Its closing, or the death of its process (pidfd), ends the workload within a second.
// One own thread; Start and Stop belong to the owner.
#pragma once

#include <memory>
#include <string>

#include "lib/base/result.h"
#include "sidecar/registry/workload_table.h"

namespace gantry::registry {

class HandoffServer {
 public:
  struct Options {
    std::string socket_path;
    mode_t socket_mode = 0660;
    size_t connections_max = 1024;
  };

  static Result<std::unique_ptr<HandoffServer>> Start(Options options, WorkloadTable& workloads);
  virtual ~HandoffServer() = default;  // stops; attached workloads end
};

}  // namespace gantry::registry
