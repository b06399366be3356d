#include "lib/gpu/all_cluster_gpus.h"

#include "lib/gpu/cuda/nvidia_cluster_gpus.h"
#include "lib/gpu/hip/amd_cluster_gpus.h"

namespace gantry::gpu {

const std::vector<std::unique_ptr<const ClusterGpus>>& AllClusterGpus() {
  static const auto* const all = [] {
    auto* vendors = new std::vector<std::unique_ptr<const ClusterGpus>>();
    vendors->push_back(NvidiaClusterGpus());
    vendors->push_back(AmdClusterGpus());
    return vendors;
  }();
  return *all;
}

}  // namespace gantry::gpu
