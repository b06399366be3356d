// Every vendor whose GPUs this build knows in a cluster. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "lib/gpu/shared/cluster_gpus.h"

namespace gantry::gpu {

const std::vector<std::unique_ptr<const ClusterGpus>>& AllClusterGpus();

}  // namespace gantry::gpu
