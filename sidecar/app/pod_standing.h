// What the sidecar's start finds out about its pod: who it is, what it was given, what is wrong
// with that. Made by the main thread before any other starts; a plain value.
#pragma once

#include "sidecar/app/sidecar_config.h"
#include "sidecar/pod/pod_config.h"
#include "sidecar/pod/slot_check.h"

namespace gantry {

struct PodStanding {
  pod::PodConfig pod;
  pod::Findings findings;
};

// Logs each finding, too.
PodStanding ExaminePod(const SidecarConfig& config);

}  // namespace gantry
