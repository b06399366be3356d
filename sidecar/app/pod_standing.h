// The sidecar's findings about its pod at the start: identity, assigned devices and faults. Made by
// the main thread before any other starts; a plain value.
#pragma once

#include "sidecar/app/sidecar_config.h"
#include "sidecar/pod/pod_config.h"
#include "sidecar/pod/slot_check.h"

namespace gantry {

struct PodStanding {
  pod::PodConfig pod;
  pod::Findings findings;
};

// Also logs each finding.
PodStanding ExaminePod(const SidecarConfig& config);

}  // namespace gantry
