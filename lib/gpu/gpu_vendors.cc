#include "lib/gpu/gpu_vendors.h"

#include "lib/gpu/cuda/cuda_driver.h"
#include "lib/gpu/cuda/nvidia_cluster_gpus.h"
#include "lib/gpu/hip/amd_cluster_gpus.h"
#include "lib/gpu/hip/hip_driver.h"

namespace gantry::gpu {

std::span<const GpuVendor> GpuVendors() {
  static constexpr GpuVendor kVendors[] = {
      {cuda::kLibraries, LoadCudaDriver, NvidiaClusterGpus, NvidiaDeviceFiles},
      {hip::kLibraries, LoadHipDriver, AmdClusterGpus, AmdDeviceFiles}};
  return kVendors;
}

}  // namespace gantry::gpu
