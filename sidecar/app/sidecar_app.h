// The wiring of a sidecar: builds every object in order, and stops them in the reverse order:
// first nobody new gets in, then transfers become quiet, then memory is unmapped, then workers end.
// Start and the destructor belong to the main thread.
#pragma once

#include <memory>

#include "lib/base/result.h"
#include "sidecar/app/pod_standing.h"
#include "sidecar/app/sidecar_config.h"

namespace gantry {

class SidecarApp {
 public:
  static Result<std::unique_ptr<SidecarApp>> Start(const SidecarConfig& config,
                                                   PodStanding standing);
  virtual ~SidecarApp() = default;
};

}  // namespace gantry
