// The vendors that this build knows, as the sidecar and its tools see them. A workload's are in
// loaded_gpu_pointers.cc, as libgantry needs less. Thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/gpu/shared/cluster_gpus.h"
#include "lib/gpu/shared/gpu_driver.h"

namespace gantry::gpu {

struct GpuVendor {
  std::span<const char* const> libraries;  // by their versions, best first
  Result<std::unique_ptr<GpuDriver>> (*load)(const std::string& library);
  std::unique_ptr<const ClusterGpus> (*cluster_gpus)();
  // The device files of GPUs that are there, without a driver. `root` is "/" or a test's folder.
  std::vector<std::string> (*device_files)(const std::string& root);
};

// In the order in which they are tried.
std::span<const GpuVendor> GpuVendors();

}  // namespace gantry::gpu
