// AMD's GPUs in a cluster. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/gpu/shared/cluster_gpus.h"

namespace gantry::gpu {

std::unique_ptr<const ClusterGpus> AmdClusterGpus();
// The device files of GPUs that are there: "/dev/...". `root` is "/" or a test's folder.
std::vector<std::string> AmdDeviceFiles(const std::string& root);

}  // namespace gantry::gpu
