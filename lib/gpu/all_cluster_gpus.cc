#include "lib/gpu/all_cluster_gpus.h"

#include "lib/gpu/gpu_vendors.h"

namespace gantry::gpu {

const std::vector<std::unique_ptr<const ClusterGpus>>& AllClusterGpus() {
  static const auto* const all = [] {
    auto* vendors = new std::vector<std::unique_ptr<const ClusterGpus>>();
    for (const GpuVendor& vendor : GpuVendors()) vendors->push_back(vendor.cluster_gpus());
    return vendors;
  }();
  return *all;
}

}  // namespace gantry::gpu
