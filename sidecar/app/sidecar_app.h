// Builds every object of a sidecar in order, and stops them in reverse. At the end new requests are
// refused, transfers become quiet, memory is unmapped, and workers exit. The main thread calls
// Start and the destructor.
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
