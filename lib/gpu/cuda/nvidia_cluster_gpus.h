// NVIDIA's GPUs in a cluster. Thread-safe.
#pragma once

#include <memory>

#include "lib/gpu/shared/cluster_gpus.h"

namespace gantry::gpu {

std::unique_ptr<const ClusterGpus> NvidiaClusterGpus();

}  // namespace gantry::gpu
